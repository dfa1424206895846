/*
provision_partitions: turn (queue, partition) names into ids, creating what does not exist.

Takes   p_queue, p_partition: parallel arrays of names, no pair twice.
Returns one row per pair: the names, queue_id, partition_id, and whether this call created it.
Locks   skep.queue rows for share, in id order, against provision_group; then inserts partitions
        in (queue_id, name) order, so two calls that create the same lanes wait, never deadlock.
Why     Ten thousand new lanes in one call are normal, hence hash joins. A partition is born with a cursor for every group of its queue. provision_group takes the
        queue row for update and gives every partition a cursor; the share lock here makes sure
        that no pair of a new group and a new partition is missed by both.
*/
create function skep.provision_partitions(p_queue text[], p_partition text[])
returns table (
  queue_name text, partition_name text, queue_id integer, partition_id bigint, created boolean)
language plpgsql
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
  v_born bigint[];
begin
  -- Creating queues in name order keeps two calls from waiting for each other in a circle.
  perform skep.ensure_queue(n.name)
  from (select distinct u.name from unnest(p_queue) u(name) order by u.name) n;
  perform 1 from skep.queue q where q.name = any(p_queue) order by q.id for share;

  with born as (
    insert into skep.partition (queue_id, name)
    select q.id, u.partition
    from unnest(p_queue, p_partition) u(queue, partition)
    join skep.queue q on q.name = u.queue
    order by q.id, u.partition
    on conflict (queue_id, name) do nothing
    returning id, queue_id
  ),
  cursors as (
    insert into skep.cursor (partition_id, group_id, queue_id)
    select b.id, g.id, b.queue_id
    from born b join skep.consumer_group g on g.queue_id = b.queue_id
    order by b.id, g.id
  )
  select coalesce(array_agg(b.id), '{}') into v_born from born b;

  -- A statement of its own: its snapshot sees the lanes another call created while this waited.
  return query
  select q.name, p.name, q.id, p.id, b.id is not null
  from unnest(p_queue, p_partition) u(queue, partition)
  join skep.queue q on q.name = u.queue
  join skep.partition p on p.queue_id = q.id and p.name = u.partition
  left join unnest(v_born) b(id) on b.id = p.id;
end $$;
