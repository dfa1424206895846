/*
chart_queues: what happened in queues, by time.

Takes   p_from, p_to, p_is_hourly: as queue_activity. p_bucket_s: the length of a bucket.
        p_queue_id: the queues. p_is_sum: all of them together.
Returns per bucket and queue with something in it, oldest first: bucket (its begin), queue_id (null
        when all are summed up), and the columns of queue_minute summed up over the bucket.
Locks   none.
Why     A chart wants as many points as it has room for, whatever is kept.
*/
create function skep.chart_queues(
  p_from timestamptz, p_to timestamptz, p_is_hourly boolean, p_bucket_s integer,
  p_queue_id integer[], p_is_sum boolean)
returns table (
  bucket timestamptz, queue_id integer, push_requests bigint, push_messages bigint,
  push_bytes bigint, push_duplicates bigint, pop_requests bigint, pop_messages bigint,
  pop_bytes bigint, pop_empty bigint, redelivered bigint, ack_requests bigint,
  ack_success bigint, ack_failed bigint, dead_letters bigint, transactions bigint,
  partitions_created bigint, lag_ms_sum bigint, lag_ms_max bigint, lag_counts bigint[])
language sql stable as $$
  with rows as materialized (
    select date_bin(make_interval(secs => p_bucket_s), a.at, 'epoch') as bucket,
           case when not p_is_sum then a.queue_id end as of_queue, a.*
    from skep.queue_activity(p_from, p_to, p_is_hourly) a
    where a.queue_id = any(p_queue_id)
  ),
  lags as (
    select l.bucket, l.of_queue, array_agg(l.messages order by l.place) as counts
    from (
      select r.bucket, r.of_queue, c.place, sum(c.messages)::bigint as messages
      from rows r cross join lateral unnest(r.lag_counts) with ordinality c(messages, place)
      group by r.bucket, r.of_queue, c.place
    ) l
    group by l.bucket, l.of_queue
  )
  select s.*, coalesce(l.counts, '{}')
  from (
    select r.bucket, r.of_queue, sum(r.push_requests)::bigint, sum(r.push_messages)::bigint,
           sum(r.push_bytes)::bigint, sum(r.push_duplicates)::bigint,
           sum(r.pop_requests)::bigint, sum(r.pop_messages)::bigint, sum(r.pop_bytes)::bigint,
           sum(r.pop_empty)::bigint, sum(r.redelivered)::bigint, sum(r.ack_requests)::bigint,
           sum(r.ack_success)::bigint, sum(r.ack_failed)::bigint, sum(r.dead_letters)::bigint,
           sum(r.transactions)::bigint, sum(r.partitions_created)::bigint,
           sum(r.lag_ms_sum)::bigint, max(r.lag_ms_max)
    from rows r
    group by r.bucket, r.of_queue
  ) s
  left join lags l on l.bucket = s.bucket and l.of_queue is not distinct from s.of_queue
  order by s.bucket, s.of_queue;
$$;
