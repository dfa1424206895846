/*
count_removals: how much retention removed, by time.

Takes   p_queue: only this one; null for all. p_from, p_to: from the first up to before the second.
        p_bucket_s: the length of a bucket.
Returns per bucket with a run in it, oldest first: bucket (its begin), retention, completed and
        eviction messages, and events, the number of runs by queue and kind.
Locks   none.
Why     A chart wants as many points as it has room for, whatever the length of the history.
*/
create function skep.count_removals(
  p_queue text, p_from timestamptz, p_to timestamptz, p_bucket_s integer)
returns table (
  bucket timestamptz, retention bigint, completed bigint, eviction bigint, events bigint)
language sql stable as $$
  select date_bin(make_interval(secs => p_bucket_s), h.started_at, 'epoch'),
         coalesce(sum(h.messages) filter (where h.kind = 'retention'), 0)::bigint,
         coalesce(sum(h.messages) filter (where h.kind = 'completed'), 0)::bigint,
         coalesce(sum(h.messages) filter (where h.kind = 'eviction'), 0)::bigint,
         count(*)
  from skep.retention_history h
  where h.started_at >= p_from and h.started_at < p_to
    and h.kind in ('retention', 'completed', 'eviction')
    and (p_queue is null or h.queue_id = (select s.id from skep.queue s where s.name = p_queue))
  group by 1
  order by 1;
$$;
