-- forget_group: end a group's subscription to its queue.
-- Returns whether it existed.
-- Locks   its skep.queue row for update, against provision_partitions.
-- Why     The row goes first, its cursors later by sweep_removed_group: a group that had lost only
--         some cursors would never read those partitions again. Polls learn by SK404 that it is
--         gone. The lock keeps provision_partitions from creating a cursor for it.
create function skep.forget_group(p_group_id integer) returns boolean
language plpgsql as $$
begin
  perform 1 from skep.queue q
  where q.id = (select g.queue_id from skep.consumer_group g where g.id = p_group_id)
  for update;
  with removed as (
    delete from skep.consumer_group g where g.id = p_group_id returning g.id, g.queue_id
  )
  insert into skep.removed_group (group_id, queue_id, removed_at)
  select r.id, r.queue_id, skep.now() from removed r;
  return found;
end $$;
