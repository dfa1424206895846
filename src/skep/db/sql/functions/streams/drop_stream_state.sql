-- drop_stream_state: delete stream state of partitions that are gone.
-- Returns how many shards were dropped.
-- Locks   skep.stream_shard rows for update, in key order, skipping locked ones.
-- Why     Partition ids are never reused. A locked shard has a running cycle that may wait for
--         partitions the caller holds, so it is not waited for; it finds its partition gone and
--         calls this.
create function skep.drop_stream_state(p_partition_id bigint[]) returns bigint
language sql as $$
  with gone as (
    select s.query_id, s.partition_id from skep.stream_shard s
    where s.partition_id = any(p_partition_id)
    order by s.query_id, s.partition_id
    for update skip locked
  ),
  dropped as (
    delete from skep.stream_shard s using gone g
    where s.query_id = g.query_id and s.partition_id = g.partition_id
    returning 1
  )
  select count(*) from dropped;
$$;
