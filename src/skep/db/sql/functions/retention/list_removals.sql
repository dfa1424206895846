-- list_removals: the history of retention, newest first.
-- Takes   p_queue, p_kind: null for all. p_before: only lower ids.
-- Returns newest first; queue is null if it is gone.
-- Why     Paged by id, so that a long history is read from where the last page ended.
create function skep.list_removals(p_queue text, p_kind text, p_before bigint, p_limit integer)
returns table (
  id bigint, run_id uuid, queue text, kind text, messages bigint, segments bigint,
  partitions bigint, started_at timestamptz, duration_ms bigint)
language sql stable as $$
  select h.id, h.run_id, q.name, h.kind, h.messages, h.segments, h.partitions, h.started_at,
         h.duration_ms
  from skep.retention_history h left join skep.queue q on q.id = h.queue_id
  where (p_queue is null or h.queue_id = (select s.id from skep.queue s where s.name = p_queue))
    and (p_kind is null or h.kind = p_kind)
    and h.id < p_before
  order by h.id desc
  limit p_limit;
$$;
