-- purge_metrics: delete some of the oldest rollups. One step of a run.
-- Takes   p_minutes_s, p_hours_s: how long rows are kept. p_limit: rows per table.
-- Returns how many rows were deleted from the table that lost most.
-- Raises  SK423 as assert_leadership.
-- Locks   as delete_before.
-- Why     Rollups must not grow without bound.
create function skep.purge_metrics(
  p_service text, p_holder uuid, p_minutes_s integer, p_hours_s integer, p_limit integer)
returns bigint
language plpgsql as $$
begin
  perform skep.assert_leadership(p_service, p_holder);
  return (
    select max(skep.delete_before(
      t.name, format('o.%1$I < $1 order by o.%1$I', t.column_name),
      skep.now() - make_interval(secs => t.keep_s), p_limit))
    from (values
      ('queue_minute', 'at', p_minutes_s), ('parked_minute', 'at', p_minutes_s),
      ('worker_minute', 'at', p_minutes_s), ('group_minute', 'at', p_minutes_s),
      ('queue_hour', 'at', p_hours_s), ('worker_hour', 'at', p_hours_s),
      ('metric_worker', 'seen_at', p_hours_s),
      ('group_activity', 'polled_at', p_hours_s)) t(name, column_name, keep_s));
end $$;
