-- renew_leases: extend leases.
-- Returns per lease still held somewhere; expires_at: the earliest of its partitions.
-- Locks   as lock_cursors.
-- Why     A renewal never shortens a lease and never revives an expired one: another consumer may
--         be taking the partition. For the laterals see push_segments.
create function skep.renew_leases(p_lease_id uuid[], p_seconds integer[])
returns table (lease_id uuid, expires_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
begin
  perform skep.lock_cursors(array_agg(k.partition_id), array_agg(k.group_id))
  from unnest(p_lease_id) i(lease_id)
  cross join lateral (
    select k.partition_id, k.group_id from skep.cursor k
    where k.lease_id = i.lease_id and k.leased is not null offset 0
  ) k;
  v_now := skep.now();

  return query
  with renewed as (
    update skep.cursor c
    set available_at = greatest(c.available_at, v_now + make_interval(secs => i.seconds))
    from (
      select u.lease_id, max(u.seconds) as seconds
      from unnest(p_lease_id, p_seconds) u(lease_id, seconds) group by u.lease_id
    ) i
    cross join lateral (
      select k.ctid, k.available_at from skep.cursor k
      where k.lease_id = i.lease_id and k.leased is not null offset 0
    ) k
    where c.ctid = k.ctid and k.available_at > v_now
    returning c.lease_id, c.available_at
  )
  select r.lease_id, min(r.available_at) from renewed r group by r.lease_id;
end $$;
