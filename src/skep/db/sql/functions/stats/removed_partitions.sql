/*
removed_partitions: how many partitions cleaning up removed from queues, by time.

Takes   p_from, p_to: from the first up to before the second. p_bucket_s: the length of a bucket.
        p_queue_id: the queues.
Returns per bucket and queue with a removal: bucket (its begin), queue_id, partitions.
Locks   none.
Why     Partitions are removed by the leader, which counts them in the history of retention.
*/
create function skep.removed_partitions(
  p_from timestamptz, p_to timestamptz, p_bucket_s integer, p_queue_id integer[])
returns table (bucket timestamptz, queue_id integer, partitions bigint)
language sql stable as $$
  select date_bin(make_interval(secs => p_bucket_s), h.started_at, 'epoch'), h.queue_id,
         sum(h.partitions)::bigint
  from skep.retention_history h
  where h.kind = 'partition' and h.started_at >= p_from and h.started_at < p_to
    and h.queue_id = any(p_queue_id)
  group by 1, 2;
$$;
