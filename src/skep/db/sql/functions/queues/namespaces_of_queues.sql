-- namespaces_of_queues: the namespaces of queues.
-- Returns those that exist; a namespace may be empty.
-- Why     Access may be granted by namespace while requests name queues. Asked again every few
--         seconds, because a queue can move to another namespace.
create function skep.namespaces_of_queues(p_queue text[])
returns table (queue text, namespace text)
language sql stable as $$
  select q.name, q.namespace from skep.queue q where q.name = any(p_queue);
$$;
