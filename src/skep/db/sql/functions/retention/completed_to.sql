/*
completed_to: the last offset of a partition that every group that reads its queue is done with.

Takes   p_partition_id, p_queue_id.
Returns the offset; 0 when a group has no cursor in the partition or nobody reads the queue.
Locks   none.
Why     Without a reader nobody has completed anything: the first one may be about to subscribe.
        The group of queue mode counts from its first poll on, in every partition of the queue.
        What is done out of order above the cursor does not count; a little is kept too long.
*/
create function skep.completed_to(p_partition_id bigint, p_queue_id integer) returns bigint
language sql stable as $$
  select coalesce(min(coalesce(c.acked, 0)), 0)
  from skep.consumer_group g
  left join lateral (
    select c.acked from skep.cursor c
    where c.partition_id = p_partition_id and c.group_id = g.id offset 0
  ) c on true
  where g.queue_id = p_queue_id and g.first_polled_at is not null;
$$;
