/*
remove_queue: delete a queue, so far that nobody can reach any of it.

Takes   p_name.
Returns the queue's id, which sweep_removed_queue takes, or null when there is no such queue.
Locks   the skep.queue row for update, which waits for those who create partitions or groups on it;
        then its skep.scheduled rows, skipping those that are just being sequenced: that finds the
        queue gone and drops them.
Why     The queue's row and its groups are few, its partitions may be a hundred thousand. Without these
        rows polls and acks find no group, pushes no queue (see push_segments), listings neither;
        whoever comes next creates the name anew, with nothing inherited.
*/
create function skep.remove_queue(p_name text) returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select q.id into v_id from skep.queue q where q.name = p_name for update;
  if not found then
    return null;
  end if;
  delete from skep.scheduled s using (
    select w.id from skep.scheduled w where w.queue_id = v_id for update skip locked
  ) w
  where s.id = w.id;
  delete from skep.consumer_group g where g.queue_id = v_id;
  delete from skep.queue q where q.id = v_id;
  insert into skep.removed_queue (queue_id, name, removed_at) values (v_id, p_name, skep.now());
  return v_id;
end $$;
