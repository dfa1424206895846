-- deferred_partitions: which of these partitions have deferred operations.
-- Takes   p_type: push or ack_batch.
-- Returns their ids.
-- Why     Asking is cheaper for a broker than sending the messages again.
create function skep.deferred_partitions(p_partition_id bigint[], p_type text) returns setof bigint
language sql stable as $$
  select p.id
  from unnest(p_partition_id) i(id)
  cross join lateral (
    select p.id, p.deferred_pushes, p.deferred_acks
    from skep.partition p where p.id = i.id offset 0
  ) p
  where case p_type when 'push' then p.deferred_pushes else p.deferred_acks end > 0;
$$;
