/*
renew_leases: give the holders of leases more time.

Takes   p_lease_id, p_seconds: parallel arrays.
Returns one row per lease that is still held on at least one lane: lease_id, expires_at (the
        earliest of its lanes).
Locks   skep.cursor rows in (partition_id, group_id) order, waiting.
Why     A renewal never shortens a lease, and never revives one that expired: the lane may already
        be on its way to another consumer.
*/
create function skep.renew_leases(p_lease_id uuid[], p_seconds integer[])
returns table (lease_id uuid, expires_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
begin
  perform 1 from skep.cursor c
  where c.lease_id = any(p_lease_id) and c.leased is not null
  order by c.partition_id, c.group_id
  for no key update;
  v_now := skep.now();

  return query
  with renewed as (
    update skep.cursor c
    set available_at = greatest(c.available_at, v_now + make_interval(secs => i.seconds))
    from (
      select u.lease_id, max(u.seconds) as seconds
      from unnest(p_lease_id, p_seconds) u(lease_id, seconds) group by u.lease_id
    ) i
    where c.lease_id = i.lease_id and c.leased is not null and c.available_at > v_now
    returning c.lease_id, c.available_at
  )
  select r.lease_id, min(r.available_at) from renewed r group by r.lease_id;
end $$;
