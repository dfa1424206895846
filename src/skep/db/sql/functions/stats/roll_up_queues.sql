-- roll_up_queues: sum up the minutes of a past hour.
-- Takes   p_service, p_holder: as apply_retention. p_settle_s: how long after its end an hour may
--         still get late reports.
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
  select m.queue_id, v_hour, sum(m.push_requests), sum(m.push_messages), sum(m.push_bytes),
         sum(m.push_duplicates), sum(m.pop_requests), sum(m.pop_messages), sum(m.pop_bytes),
         sum(m.pop_empty), sum(m.redelivered), sum(m.ack_requests), sum(m.ack_success),
         sum(m.ack_failed), sum(m.dead_letters), sum(m.transactions), sum(m.partitions_created),
         sum(m.lag_ms_sum), max(m.lag_ms_max),
         array(select sum(c.messages)::bigint
               from skep.queue_minute o
               cross join lateral unnest(o.lag_counts) with ordinality c(messages, place)
               where o.queue_id = m.queue_id and o.at >= v_hour
                 and o.at < v_hour + interval '1 hour'
               group by c.place order by c.place)
  from skep.queue_minute m
  where m.at >= v_hour and m.at < v_hour + interval '1 hour'
  group by m.queue_id
  on conflict (queue_id, at) do nothing;
  return v_hour;
end $$;
