-- resolve_partitions: the ids of existing partitions by name.
-- Returns no row for an unknown name.
-- Why     An operator's typo must not create a partition, as provision_partitions would.
create function skep.resolve_partitions(p_queue_id integer, p_partition text[])
returns table (partition_name text, partition_id bigint)
language sql stable as $$
  select p.name, p.id
  from unnest(p_partition) u(name)
  cross join lateral (
    select p.id, p.name from skep.partition p
    where p.queue_id = p_queue_id and p.name = u.name offset 0
  ) p;
$$;
