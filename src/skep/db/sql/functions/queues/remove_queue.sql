-- remove_queue: make a queue unreachable.
-- Returns the queue's id, for sweep_removed_queue; null if there is no such queue.
-- Locks   the skep.queue row for update, which waits for sessions that create partitions or groups;
--         then its skep.scheduled rows, skipping those being sequenced, which find the queue gone
--         and are dropped.
-- Why     The queue and its groups are few rows, its partitions may be a hundred thousand. Without
--         the former, polls and acks find no group, pushes no queue (see push_segments), listings
--         neither; the name can be created anew and inherits nothing.
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
