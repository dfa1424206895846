-- purge_metrics: delete some of the oldest rollups. One step of a run.
-- Takes   p_service, p_holder: as apply_retention. p_minutes_s, p_hours_s: how long rows by minute
--         and by hour are kept. p_limit: rows per table.
-- Returns how many rows were deleted from the table that lost most.
-- Raises  SK423 as assert_leadership.
-- Locks   the deleted rows.
-- Why     Rollups must not grow without bound.
create function skep.purge_metrics(
  p_service text, p_holder uuid, p_minutes_s integer, p_hours_s integer, p_limit integer)
returns bigint
language plpgsql as $$
declare
  v_minutes constant timestamptz := skep.now() - make_interval(secs => p_minutes_s);
  v_hours constant timestamptz := skep.now() - make_interval(secs => p_hours_s);
  v_count bigint;
  v_most bigint := 0;
  v_table text;
  v_before timestamptz;
  v_column text;
begin
  perform skep.assert_leadership(p_service, p_holder);
  for v_table, v_column, v_before in
    select * from (values
      ('queue_minute', 'at', v_minutes), ('parked_minute', 'at', v_minutes),
      ('worker_minute', 'at', v_minutes), ('group_minute', 'at', v_minutes),
      ('queue_hour', 'at', v_hours), ('worker_hour', 'at', v_hours),
      ('metric_worker', 'seen_at', v_hours)) t
  loop
    execute format(
      'delete from skep.%1$I t using (
         select o.ctid as place from skep.%1$I o where o.%2$I < $1 order by o.%2$I limit $2
       ) old
       where t.ctid = any(array[old.place])', v_table, v_column)
    using v_before, p_limit;
    get diagnostics v_count = row_count;
    v_most := greatest(v_most, v_count);
  end loop;
  return v_most;
end $$;
