-- list_queue_hours: volume and deliveries of queues by hour.
-- Takes   as list_hot_keys; p_after: {queue}.
-- Returns rows by (hour, queue) of two tables; null where one of them has no row.
-- Why     The first p_limit rows of both tables suffice for the page.
create function skep.list_queue_hours(
  p_since timestamptz, p_upto timestamptz, p_queue text, p_after text[], p_limit integer)
returns table (
  hour timestamptz, queue text, messages bigint, bytes bigint, partitions bigint,
  busiest_messages bigint, pushed bigint, delivered bigint, redelivered bigint, completed bigint,
  failed bigint, lag_ms_sum bigint, lag_ms_max bigint, lag_counts bigint[])
language sql stable as $$
  select hour, queue, v.messages, v.bytes, v.partitions, v.busiest_messages, d.pushed, d.delivered,
         d.redelivered, d.completed, d.failed, d.lag_ms_sum, d.lag_ms_max, d.lag_counts
  from (
    select t.* from skep.analytics_volume t
    where t.hour >= p_since and t.hour < p_upto and (p_queue is null or t.queue = p_queue)
      and (p_after is null or (t.hour, t.queue) > (p_since, p_after[1]))
    order by t.hour, t.queue limit p_limit
  ) v
  full join (
    select t.* from skep.analytics_delivery t
    where t.hour >= p_since and t.hour < p_upto and (p_queue is null or t.queue = p_queue)
      and (p_after is null or (t.hour, t.queue) > (p_since, p_after[1]))
    order by t.hour, t.queue limit p_limit
  ) d using (hour, queue)
  order by hour, queue
  limit p_limit;
$$;
