/*
complete_leases: apply the plain acks of a call, one completed range per lane, all at once.

Takes   per ack, in parallel arrays: p_item (its position in the arrays that follow),
        p_partition_id, p_group_id; then p_lease_id, p_offset, p_status as ack_messages; p_now.
Returns one row per ack that was plain and is done: item, lease_released, has_more. The others are
        left untouched: several acks of one lane, anything but completed, no lease or a lost one,
        an offset that is unknown or already done, a lane with failures on record.
Locks   the cursors are locked by the caller; skep.partition rows for share, skipping locked ones.
Why     Two statements for any number of lanes. A lane is left idle only while no push is in
        flight on it; see take_lanes.
*/
create function skep.complete_leases(
  p_item integer[], p_partition_id bigint[], p_group_id integer[], p_lease_id uuid[],
  p_offset bigint[], p_status text[], p_now timestamptz)
returns table (item integer, lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_idle integer[];
begin
  -- Finished lanes with nothing beyond: these may rest.
  select array_agg(l.item) into v_idle
  from (
    select i.item
    from unnest(p_item, p_partition_id, p_group_id) i(item, partition_id, group_id)
    join skep.cursor c on c.partition_id = i.partition_id and c.group_id = i.group_id
    join skep.partition p on p.id = i.partition_id
    where p_offset[i.item] >= c.leased and p.head <= p_offset[i.item]
    for share of p skip locked
  ) l;

  return query
  update skep.cursor c
  set acked = p_offset[i.item],
      leased = case when p_offset[i.item] >= c.leased then null else c.leased end,
      available_at = case
        when p_offset[i.item] < c.leased then c.available_at
        when i.item = any(v_idle) then null
        else p_now
      end,
      leased_from = null,
      deliveries = case when p_offset[i.item] < c.leased then 1 else 0 end
  from (
    select u.item, u.partition_id, u.group_id,
           count(*) over (partition by u.partition_id, u.group_id) as acks
    from unnest(p_item, p_partition_id, p_group_id) u(item, partition_id, group_id)
  ) i
  where c.partition_id = i.partition_id and c.group_id = i.group_id
    and i.acks = 1
    and p_status[i.item] = 'completed'
    and c.lease_id = p_lease_id[i.item] and c.available_at > p_now
    and p_offset[i.item] > c.acked and p_offset[i.item] <= c.leased
    and c.failed_offset is null
  returning i.item, c.leased is null, c.leased is null and c.available_at is not null;
end $$;
