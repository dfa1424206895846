/*
drop_stream_state: forget what streams kept for partitions that are gone.

Takes   p_partition_id.
Returns how many shards were dropped.
Locks   skep.stream_shard rows in (query_id, partition_id) order, skipping locked ones.
Why     State belongs to a partition's messages; partition ids are never used again. A shard that is
        locked has a cycle under way, which holds it while it waits for partitions: the caller, who
        holds those, must not wait for it. The cycle finds its partition gone and comes here itself.
*/
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
