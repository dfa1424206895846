-- end_leases: end leases now, because their holder is gone.
-- Returns the number of leases ended.
-- Locks   as lock_cursors.
-- Model   Delivery!Expire
-- Why     The messages were delivered, so unlike release_claims this counts as a delivery: a
--         message that kills its consumer must not look new for ever. Only the time changes, as if
--         the lease had expired. A failed message keeps its back-off.
create function skep.end_leases(
  p_partition_id bigint[], p_group_id integer[], p_lease_id uuid[]) returns integer
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_count integer;
begin
  perform skep.lock_cursors(p_partition_id, p_group_id);

  update skep.cursor c
  set available_at = greatest(v_now, c.retry_at)
  from unnest(p_partition_id, p_group_id, p_lease_id) i(partition_id, group_id, lease_id)
  where c.partition_id = any(array[i.partition_id]) and c.group_id = i.group_id
    and c.lease_id = i.lease_id and c.leased is not null and c.available_at > v_now;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
