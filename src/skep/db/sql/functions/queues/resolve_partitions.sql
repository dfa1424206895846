/*
resolve_partitions: the ids of partitions that exist, by their names.

Takes   p_queue_id, p_partition: names.
Returns partition_name, partition_id; no row for a name that does not exist.
Locks   none.
Why     Unlike provision_partitions this creates nothing: an operator's typing error must not
        become a partition.
*/
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
