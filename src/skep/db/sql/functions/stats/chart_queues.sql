-- chart_queues: activity of queues over time.
-- Takes   p_from, p_to, p_is_hourly: as queue_activity. p_is_sum: all queues together. p_has_lags:
--         include the histogram of lags.
-- Returns per bucket and queue with activity, oldest first: bucket (its start), queue_id (null for
--         the sum), and the columns of queue_minute, summed.
-- Why     Histograms are added separately and on request: they cost more than all the rest.
create function skep.chart_queues(
  p_from timestamptz, p_to timestamptz, p_is_hourly boolean, p_bucket_s integer,
  p_queue_id integer[], p_is_sum boolean, p_has_lags boolean)
returns table (
  bucket timestamptz, queue_id integer, push_requests bigint, push_messages bigint,
  push_bytes bigint, push_duplicates bigint, pop_requests bigint, pop_messages bigint,
  pop_bytes bigint, pop_empty bigint, redelivered bigint, ack_requests bigint,
  ack_success bigint, ack_failed bigint, dead_letters bigint, transactions bigint,
  partitions_created bigint, lag_ms_sum bigint, lag_ms_max bigint, lag_counts bigint[])
language sql stable as $$
  with lags as (
    select l.bucket, l.of_queue, array_agg(l.messages order by l.place) as counts
    from (
      select date_bin(make_interval(secs => p_bucket_s), a.at, 'epoch') as bucket,
             case when p_is_sum then 0 else a.queue_id end as of_queue,
             c.place, sum(c.messages)::bigint as messages
      from skep.queue_activity(p_from, p_to, p_is_hourly) a
      cross join lateral unnest(a.lag_counts) with ordinality c(messages, place)
      where a.queue_id = any(p_queue_id) and p_has_lags and a.pop_messages > 0
      group by 1, 2, 3
    ) l
    group by l.bucket, l.of_queue
  )
  select s.*, coalesce(l.counts, '{}')
  from (
    select date_bin(make_interval(secs => p_bucket_s), a.at, 'epoch') as bucket,
           case when not p_is_sum then a.queue_id end as of_queue,
           sum(a.push_requests)::bigint, sum(a.push_messages)::bigint,
           sum(a.push_bytes)::bigint, sum(a.push_duplicates)::bigint,
           sum(a.pop_requests)::bigint, sum(a.pop_messages)::bigint, sum(a.pop_bytes)::bigint,
           sum(a.pop_empty)::bigint, sum(a.redelivered)::bigint, sum(a.ack_requests)::bigint,
           sum(a.ack_success)::bigint, sum(a.ack_failed)::bigint, sum(a.dead_letters)::bigint,
           sum(a.transactions)::bigint, sum(a.partitions_created)::bigint,
           sum(a.lag_ms_sum)::bigint, max(a.lag_ms_max)
    from skep.queue_activity(p_from, p_to, p_is_hourly) a
    where a.queue_id = any(p_queue_id)
    group by 1, 2
  ) s
  left join lags l on l.bucket = s.bucket and l.of_queue = coalesce(s.of_queue, 0)
  order by s.bucket, s.of_queue;
$$;
