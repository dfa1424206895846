-- removed_partitions: partitions removed from queues, by time.
-- Takes   p_to is exclusive.
-- Returns per bucket and queue with a removal; bucket is its start.
-- Why     The leader removes idle partitions and counts them in the history of retention.
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
