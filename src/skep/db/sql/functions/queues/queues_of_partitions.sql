-- queues_of_partitions: the queues that partitions belong to.
-- Returns those that exist.
-- Why     A caller with access to some queues names a message by its partition. Brokers cache the
--         answer: a partition never changes its queue.
create function skep.queues_of_partitions(p_partition_id bigint[])
returns table (partition_id bigint, queue text)
language sql stable as $$
  select p.id, q.name
  from unnest(p_partition_id) as wanted (id)
  cross join lateral (select * from skep.partition p where p.id = wanted.id offset 0) p
  join skep.queue q on q.id = p.queue_id;
$$;
