-- find_partitions: find partitions by name, creating missing ones.
-- Takes   pairs of names; a pair may repeat.
-- Returns the ids in the order of the arrays.
-- Raises  40001 if a queue is being deleted.
-- Locks   none if all exist, otherwise as provision_partitions for the missing ones.
-- Why     provision_partitions locks its queues. A user's transaction may take long, and must not
--         keep a queue from being configured because it pushed into it.
create function skep.find_partitions(p_queue text[], p_partition text[]) returns bigint[]
language plpgsql as $$
declare
  v_partitions bigint[];
  v_queue text[];
  v_partition text[];
begin
  for v_try in 1..2 loop
    with pair as (
      select distinct u.queue, u.partition from unnest(p_queue, p_partition) u(queue, partition)
    ),
    found as materialized (
      select r.queue, r.partition, p.id
      from pair r
      left join lateral (
        select p.id from skep.queue q
        join skep.partition p on p.queue_id = q.id and p.name = r.partition
        where q.name = r.queue offset 0
      ) p on true
    )
    select array_agg(l.queue) filter (where l.id is null),
           array_agg(l.partition) filter (where l.id is null),
           (select array_agg(l.id order by u.item)
            from unnest(p_queue, p_partition) with ordinality u(queue, partition, item)
            join found l on l.queue = u.queue and l.partition = u.partition)
    into v_queue, v_partition, v_partitions
    from found l;
    if v_queue is null then
      return v_partitions;
    end if;
    perform skep.provision_partitions(v_queue, v_partition);
  end loop;
  raise exception using errcode = '40001', message = 'a queue was deleted meanwhile';
end $$;
