-- wake_idle: make idle cursors of pushed partitions ready.
-- Takes   p_partition_id: ascending.
-- Locks   idle skep.cursor rows for no key update, in (partition_id, group_id) order; the caller
--         holds the partitions that matter: waking another one costs a poll, nothing else.
-- Model   WakeUp!LookAtCursor
-- Why     Every way to push ends with it, or with hand_over. The update takes the rows in index
--         order, and looks again at one that changed while it waited. Where the queue holds messages
--         back, they become ready when the first may be read.
create function skep.wake_idle(p_partition_id bigint[], p_now timestamptz) returns void
language plpgsql as $$
begin
  update skep.cursor c
  set available_at = (
    select p_now + make_interval(secs => greatest(q.delayed_processing_s, q.window_buffer_s))
    from skep.queue q where q.id = c.queue_id)
  from unnest(p_partition_id) i(id)
  -- An array leaves one way to join, as push_segments explains.
  where c.partition_id = any(array[i.id]) and c.available_at is null;
end $$;
