-- provision_partitions: turn (queue, partition) names into ids, creating missing ones.
-- Takes   pairs of names, no pair twice. p_create: whether what does not exist is created.
--         p_namespace, p_task: of each pair's queue if it is new; null or missing: by its name.
-- Returns per pair that exists: the ids, and whether this call created it.
-- Locks   nothing without p_create; else skep.queue rows for share, in id order, against
--         provision_group. Then it inserts partitions in (queue_id, name) order, so that two calls
--         never wait in a circle.
-- Why     A new partition gets a cursor for every group of its queue. provision_group takes the
--         queue for update and gives every partition a cursor; with the share lock here no pair of
--         new group and new partition is missed. The writing transaction id tells which partitions
--         are new: ten thousand per call are normal, and searching each in a list took seconds. For
--         the laterals see push_segments.
create function skep.provision_partitions(
  p_queue text[], p_partition text[], p_create boolean default true,
  p_namespace text[] default '{}', p_task text[] default '{}')
returns table (
  queue_name text, partition_name text, queue_id integer, partition_id bigint, created boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  if p_create then
    -- Creating queues in name order avoids deadlocks between calls.
    perform skep.ensure_queue(n.name, n.namespace, n.task)
    from (
      select u.name, max(u.namespace) as namespace, max(u.task) as task
      from unnest(p_queue, p_namespace, p_task) u(name, namespace, task)
      group by u.name order by u.name
    ) n;
    perform 1 from skep.queue q where q.name = any(p_queue) order by q.id for share;

    with born as (
      insert into skep.partition (queue_id, name)
      select q.id, u.partition
      from unnest(p_queue, p_partition) u(queue, partition)
      join skep.queue q on q.name = u.queue
      order by q.id, u.partition
      on conflict (queue_id, name) do nothing
      returning id, queue_id
    )
    insert into skep.cursor (partition_id, group_id, queue_id, starts_at)
    select b.id, g.id, b.queue_id,
           case when g.subscribed_from > skep.now() then g.subscribed_from end
    from born b join skep.consumer_group g on g.queue_id = b.queue_id
    order by b.id, g.id;
  end if;

  -- Its own statement: its snapshot sees partitions that another call created while this waited.
  return query
  select u.queue, u.partition, q.id, p.id,
         coalesce(p.writer = pg_current_xact_id_if_assigned()::xid, false)
  from unnest(p_queue, p_partition) u(queue, partition)
  cross join lateral (select q.id from skep.queue q where q.name = u.queue offset 0) q
  cross join lateral (
    select p.id, p.xmin as writer from skep.partition p
    where p.queue_id = q.id and p.name = u.partition offset 0
  ) p;
end $$;
