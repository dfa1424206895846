-- roll_up_queues: sum up the minutes of a past hour.
-- Takes   p_settle_s: how long after its end an hour may still get late reports.
-- Returns the hour that was rolled up; null if none is left.
-- Raises  SK423 as assert_leadership.
-- Locks   the skep.queue_hour rows of that hour.
-- Why     An hour is written as a whole while its minutes exist, so repeating it is harmless. Long
--         charts read one row per hour instead of sixty.
create function skep.roll_up_queues(p_service text, p_holder uuid, p_settle_s integer)
returns timestamptz
language plpgsql as $$
declare
  v_hour timestamptz;
begin
  perform skep.assert_leadership(p_service, p_holder);
  select date_trunc('hour', m.at, 'UTC') into v_hour
  from skep.queue_minute m
  where m.at >= coalesce((select max(h.at) from skep.queue_hour h) + interval '1 hour', '-infinity')
    and m.at < date_trunc('hour', skep.now() - make_interval(secs => p_settle_s), 'UTC')
  order by m.at limit 1;
  if v_hour is null then
    return null;
  end if;

  insert into skep.queue_hour
  select c.queue_id, c.bucket, c.push_requests, c.push_messages, c.push_bytes, c.push_duplicates,
         c.pop_requests, c.pop_messages, c.pop_bytes, c.pop_empty, c.redelivered, c.ack_requests,
         c.ack_success, c.ack_failed, c.dead_letters, c.transactions, c.partitions_created,
         c.lag_ms_sum, c.lag_ms_max, c.lag_counts
  from skep.chart_queues(
    v_hour, v_hour + interval '1 hour', false, 3600,
    array(select distinct m.queue_id from skep.queue_minute m
          where m.at >= v_hour and m.at < v_hour + interval '1 hour'), false, true) c
  on conflict (queue_id, at) do nothing;
  return v_hour;
end $$;
