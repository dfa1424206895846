-- lock_partitions: lock partitions in the global order.
-- Takes   ids in any order; an id may repeat. Ids without a partition are ignored.
-- Locks   skep.partition rows for no key update, in id order, waiting.
-- Model   WakeUp!LockPartition
-- Why     While a partition is held no push is in flight on it. Partitions are locked before their
--         cursors (lock_cursors), each in ascending order, so no sessions wait in a circle.
create function skep.lock_partitions(p_partition_id bigint[]) returns void
language plpgsql as $$
begin
  perform 1
  from (select distinct u.id from unnest(p_partition_id) u(id) order by u.id) i
  cross join lateral (
    select 1 from skep.partition p where p.id = i.id for no key update
  ) p;
end $$;
