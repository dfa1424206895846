-- retention_work: queues that need retention or eviction.
-- Returns by queue; kind: retention, completed or eviction.
-- Why     Reads queues, which are few, and no partition.
create function skep.retention_work() returns table (queue_id integer, kind text)
language sql stable as $$
  select q.id, k.kind
  from skep.queue q
  cross join lateral (values
    ('retention', q.ttl_s > 0 or (q.retention_enabled and q.retention_s > 0)),
    ('completed', q.retention_enabled and q.completed_retention_s > 0),
    ('eviction', q.max_wait_time_s > 0 and not q.is_paused)
  ) k(kind, is_wanted)
  where k.is_wanted
  order by q.id, k.kind;
$$;
