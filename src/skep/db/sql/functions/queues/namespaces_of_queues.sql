/*
namespaces_of_queues: the namespaces of queues.

Takes   p_queue: names, existing or not.
Returns queue and namespace for those that exist; the namespace is empty if it has none.
Locks   none.
Why     A caller may be granted a whole namespace and names a queue. Asked again every few seconds,
        because a queue can be configured into another namespace.
*/
create function skep.namespaces_of_queues(p_queue text[])
returns table (queue text, namespace text)
language sql stable as $$
  select q.name, q.namespace from skep.queue q where q.name = any(p_queue);
$$;
