-- has_delivery_rules: whether delivery to a group depends on more than its cursor.
-- Returns true if plan_partition must be asked about every partition.
-- Locks   none.
-- Why     Asked once per call: the partitions of most queues must not pay for such options.
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
