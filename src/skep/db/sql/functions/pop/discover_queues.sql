/*
discover_queues: the queues of a namespace or task, the most important first.

Takes   p_namespace, p_task: empty for any; p_limit: queues at most.
Returns name and priority, by falling priority and then by name.
Locks   none.
Why     Consumers may name what they are for instead of a queue. Brokers ask about once a second
        for as long as somebody wants to know, so that new queues are noticed.
*/
create function skep.discover_queues(p_namespace text, p_task text, p_limit integer)
returns table (name text, priority integer)
language sql stable as $$
  select q.name, q.priority
  from skep.queue q
  where (p_namespace = '' or q.namespace = p_namespace) and (p_task = '' or q.task = p_task)
  order by q.priority desc, q.name
  limit p_limit;
$$;
