-- discover_queues: the queues of a namespace or task, highest priority first.
-- Takes   p_namespace, p_task: empty for any.
-- Returns by descending priority, then name.
-- Locks   none.
-- Why     Consumers may name a namespace or task instead of a queue. Brokers ask about once a
--         second while such a poll waits, so that new queues are noticed.
create function skep.discover_queues(p_namespace text, p_task text, p_limit integer)
returns table (name text, priority integer)
language sql stable as $$
  select q.name, q.priority
  from skep.queue q
  where (p_namespace = '' or q.namespace = p_namespace) and (p_task = '' or q.task = p_task)
  order by q.priority desc, q.name
  limit p_limit;
$$;
