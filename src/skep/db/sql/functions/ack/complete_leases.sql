-- complete_leases: apply the plain acks of a call, one completed range per partition.
-- Takes   per ack, in parallel arrays as ack_messages; p_group_id: null: no such group.
-- Returns one row per plain ack; item is 1-based. Not plain, and left untouched: several acks of
--         one partition, a status other than completed, a missing or lost lease, an unknown or
--         finished offset, a partition with recorded failures or messages done ahead.
-- Locks   skep.partition rows for share, skipping locked ones; the caller holds the cursors.
-- Model   Delivery!Ack
-- Why     One statement for any number of partitions. A partition becomes idle only while no push
--         is in flight on it; see take_partitions.
create function skep.complete_leases(
  p_partition_id bigint[], p_group_id integer[], p_lease_id uuid[], p_offset bigint[],
  p_status text[], p_now timestamptz)
returns table (item integer, lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  update skep.cursor c
  set acked = i.upto,
      leased = case when i.upto >= c.leased then null else c.leased end,
      available_at = case
        when i.upto < c.leased then c.available_at
        when i.is_idle then null
        else p_now
      end,
      leased_from = case when i.upto < c.leased then c.leased_from end,
      unanswered = case when i.upto < c.leased then 1 else 0 end
  from (
    select u.item, u.upto, k.place, r.is_idle
    from (
      select n.*, count(*) over (partition by n.partition_id, n.group_id) as acks
      from unnest(p_partition_id, p_group_id, p_lease_id, p_offset, p_status)
             with ordinality n(partition_id, group_id, lease_id, upto, status, item)
    ) u
    cross join lateral (
      select k.ctid as place, k.acked, k.leased, k.lease_id, k.available_at, k.failed_offset,
             k.done
      from skep.cursor k
      where k.partition_id = u.partition_id and k.group_id = u.group_id offset 0
    ) k
    -- Finished partitions with nothing beyond may become idle.
    left join lateral (
      select true as is_idle from skep.partition p
      where p.id = u.partition_id and u.upto = k.leased and p.head <= u.upto
      for share skip locked
    ) r on true
    where u.acks = 1
      and u.status = 'completed'
      and k.lease_id = u.lease_id and k.available_at > p_now
      and u.upto > k.acked and u.upto <= k.leased
      and k.failed_offset is null and k.done is null
  ) i
  where c.ctid = i.place
  returning i.item::integer, c.leased is null, c.leased is null and c.available_at is not null;
end $$;
