-- count_operations: update the totals of deferred operations.
-- Takes   per change; p_operations and p_bytes are negative for what leaves a status.
-- Locks   skep.operation_total rows in order; the last lock of a transaction.
-- Why     A limit on waiting operations must not cost a count. The shard follows the partition, so
--         processes on different partitions rarely meet.
create function skep.count_operations(
  p_partition_id bigint[], p_type text[], p_status text[], p_operations bigint[],
  p_bytes bigint[]) returns void
language sql as $$
  insert into skep.operation_total as t (type, status, shard, operations, bytes)
  select c.type, c.status, c.shard, sum(c.operations), sum(c.bytes)
  from (
    select u.type, u.status, (u.partition_id % 16)::integer as shard, u.operations, u.bytes
    from unnest(p_partition_id, p_type, p_status, p_operations, p_bytes)
           u(partition_id, type, status, operations, bytes)
  ) c
  group by c.type, c.status, c.shard
  order by c.type, c.status, c.shard
  on conflict (type, status, shard) do update
  set operations = t.operations + excluded.operations, bytes = t.bytes + excluded.bytes;
$$;
