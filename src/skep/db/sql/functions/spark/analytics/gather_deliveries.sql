-- gather_deliveries: store what brokers counted in some hours, by queue.
-- Takes   whole hours, p_upto exclusive. p_limit: queues per hour, busiest first.
-- Returns how many rows were stored.
-- Locks   the rows written.
-- Why     Rollups are purged and hold ids, not names. Where they are incomplete by now, the fuller
--         stored row stays.
create function skep.gather_deliveries(
  p_since timestamptz, p_upto timestamptz, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_stored bigint;
begin
  with busy as (
    select s.hour, s.queue_id
    from (
      select date_trunc('hour', a.at, 'UTC') as hour, a.queue_id,
             row_number() over (
               partition by date_trunc('hour', a.at, 'UTC')
               order by sum(a.push_messages + a.pop_messages) desc, a.queue_id) as place
      from skep.queue_activity(p_since, p_upto, true) a
      group by 1, 2
    ) s
    where s.place <= p_limit
  ),
  activity as materialized (
    select b.hour, a.*
    from busy b
    join skep.queue_activity(p_since, p_upto, true) a
      on a.queue_id = b.queue_id and date_trunc('hour', a.at, 'UTC') = b.hour
  ),
  lags as (
    select l.hour, l.queue_id, array_agg(l.messages order by l.place) as counts
    from (
      select a.hour, a.queue_id, c.place, sum(c.messages)::bigint as messages
      from activity a cross join lateral unnest(a.lag_counts) with ordinality c(messages, place)
      group by 1, 2, 3
    ) l
    group by 1, 2
  )
  insert into skep.analytics_delivery as d
  select a.hour, q.name, sum(a.push_messages), sum(a.pop_messages), sum(a.redelivered),
         sum(a.ack_success), sum(a.ack_failed), sum(a.lag_ms_sum), max(a.lag_ms_max),
         coalesce((select l.counts from lags l where l.hour = a.hour and l.queue_id = a.queue_id),
                  '{}')
  from activity a join skep.queue q on q.id = a.queue_id
  group by a.hour, a.queue_id, q.name
  on conflict (hour, queue) do update
    set pushed = excluded.pushed, delivered = excluded.delivered,
        redelivered = excluded.redelivered, completed = excluded.completed,
        failed = excluded.failed, lag_ms_sum = excluded.lag_ms_sum,
        lag_ms_max = excluded.lag_ms_max, lag_counts = excluded.lag_counts
    where excluded.pushed + excluded.delivered + excluded.completed + excluded.failed
       >= d.pushed + d.delivered + d.completed + d.failed;
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
