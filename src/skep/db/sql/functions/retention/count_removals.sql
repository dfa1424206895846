-- count_removals: messages removed by retention, by time.
-- Takes   p_queue: null for all. p_to is exclusive.
-- Returns per bucket, oldest first: its start, messages by kind, events (runs by queue and kind).
-- Why     A chart has a fixed number of points, however long the history.
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
