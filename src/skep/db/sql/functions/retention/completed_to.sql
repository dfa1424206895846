-- completed_to: the last offset of a partition that every group of its queue has finished.
-- Returns the offset; 0 if a group has no cursor in the partition or the queue has no reader.
-- Why     A queue without readers has completed nothing: the first group may be about to subscribe.
--         The default group counts from its first poll on. Messages done above the cursor do not
--         count, which keeps a little too much.
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
