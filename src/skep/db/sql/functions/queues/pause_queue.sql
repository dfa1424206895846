/*
pause_queue: stop or resume the delivery of a queue.

Takes   p_name; p_is_paused.
Returns the queue's id, or null when there is no such queue.
Locks   the skep.queue row for no key update.
Why     Pushes go on; polls find nothing until the queue is resumed. The version grows because the
        queue changed; pausing what is paused changes nothing.
*/
create function skep.pause_queue(p_name text, p_is_paused boolean) returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select q.id into v_id from skep.queue q where q.name = p_name for no key update;
  update skep.queue q
  set is_paused = p_is_paused, version = q.version + 1, updated_at = skep.now()
  where q.id = v_id and q.is_paused <> p_is_paused;
  return v_id;
end $$;
