/*
count_operations: keep the totals of operations up to date.

Takes   per change, in parallel arrays: p_partition_id, p_type, p_status, p_operations and p_bytes,
        which are negative for what is leaving a status.
Returns nothing.
Locks   skep.operation_total rows in order, until commit; the last thing a transaction does.
Why     A bound on what waits must not cost a count of what waits. The shard goes by the partition, so
        those who work on different partitions rarely meet.
*/
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
