-- pause_queue: stop or resume delivery of a queue.
-- Returns the queue's id, null if there is no such queue.
-- Locks   the skep.queue row for no key update, then as expect_progress.
-- Why     Pushes go on; polls get nothing until the queue is resumed. A change increments the
--         version; pausing a paused queue changes nothing.
create function skep.pause_queue(p_name text, p_is_paused boolean) returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select q.id into v_id from skep.queue q where q.name = p_name for no key update;
  update skep.queue q
  set is_paused = p_is_paused, version = q.version + 1, updated_at = skep.now()
  where q.id = v_id and q.is_paused <> p_is_paused;
  if found and not p_is_paused then
    perform skep.expect_progress(
      array(select g.id from skep.consumer_group g where g.queue_id = v_id));
  end if;
  return v_id;
end $$;
