/*
has_delivery_rules: whether what a group may take from a partition depends on more than its cursor.

Takes   p_group, p_queue: the group and its queue.
Returns true when plan_partition must be asked about every partition.
Locks   none.
Why     Asked once per call. Most queues have none of these options, and their partitions must not pay
        for them.
*/
create function skep.has_delivery_rules(p_group skep.consumer_group, p_queue skep.queue)
returns boolean
language sql immutable as $$
  select p_queue.ttl_s > 0
         or p_queue.delayed_processing_s > 0
         or p_queue.window_buffer_s > 0
         or p_queue.max_deliveries > 0
         or coalesce(p_group.conflation, false)
         or coalesce(p_group.subscribed_from > p_group.created_at, false);
$$;
