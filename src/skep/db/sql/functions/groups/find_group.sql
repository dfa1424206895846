-- find_group: find a queue and a consumer group by name.
-- Returns group_id is null if the queue has no such group. No row: no such queue.
-- Why     Operators name things that may not exist, and are told which of the two is missing.
--         Unlike provision_group it creates nothing.
create function skep.find_group(p_queue text, p_group text)
returns table (queue_id integer, group_id integer)
language sql stable as $$
  select q.id, g.id
  from skep.queue q
  left join skep.consumer_group g on g.queue_id = q.id and g.name = p_group
  where q.name = p_queue;
$$;
