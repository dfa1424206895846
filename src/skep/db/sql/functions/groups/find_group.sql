/*
find_group: a queue and a consumer group by their names.

Takes   p_queue, p_group.
Returns queue_id, group_id. group_id is null when the queue has no such group; no row when there
        is no such queue.
Locks   none.
Why     Operators name things that may not exist, and are told which of the two it is. Unlike
        provision_group this creates nothing.
*/
create function skep.find_group(p_queue text, p_group text)
returns table (queue_id integer, group_id integer)
language sql stable as $$
  select q.id, g.id
  from skep.queue q
  left join skep.consumer_group g on g.queue_id = q.id and g.name = p_group
  where q.name = p_queue;
$$;
