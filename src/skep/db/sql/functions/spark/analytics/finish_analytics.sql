-- finish_analytics: record that hours were computed, and delete expired results.
-- Takes   p_taken_at, p_position: the log when the run began. p_keep_days: of results.
-- Returns how many rows were deleted.
-- Locks   the rows written and deleted.
-- Why     Runs in the transaction that stores the results, so the watermark never exceeds them.
--         Whole days go, because the lake is written by day.
create function skep.finish_analytics(
  p_since timestamptz, p_upto timestamptz, p_messages bigint, p_taken_at timestamptz,
  p_position json, p_keep_days integer) returns bigint
language plpgsql as $$
declare
  v_oldest constant timestamptz :=
    date_trunc('day', skep.now(), 'UTC') - make_interval(days => p_keep_days);
  v_table text;
  v_count bigint;
  v_dropped bigint := 0;
begin
  insert into skep.analytics_run (
    since, upto, messages, is_next, taken_at, position, finished_at)
  select p_since, p_upto, p_messages, coalesce(p_since <= p.watermark, true), p_taken_at,
         p_position, p.now
  from skep.analytics_progress() p;

  foreach v_table in array array[
    'analytics_volume', 'analytics_key', 'analytics_delivery', 'analytics_letter', 'analytics_lag']
  loop
    execute format('delete from skep.%I t where t.hour < $1', v_table) using v_oldest;
    get diagnostics v_count = row_count;
    v_dropped := v_dropped + v_count;
  end loop;
  -- The run that gives the watermark stays.
  delete from skep.analytics_run r
  where r.finished_at < v_oldest
    and r.id <> (
      select n.id from skep.analytics_run n where n.is_next order by n.upto desc limit 1);
  return v_dropped;
end $$;
