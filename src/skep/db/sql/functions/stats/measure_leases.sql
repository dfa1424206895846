/*
measure_leases: how much is under lease at the moment.

Takes   p_limit: partitions to look at, at most.
Returns one row: leases, partitions, and messages: those under lease that are not done yet.
Locks   none.
Why     A figure for the status; the index of leases lists the partitions that have one. A lease that
        ran out counts until somebody takes the partition again, as it does for everybody else.
*/
create function skep.measure_leases(p_limit integer)
returns table (leases bigint, partitions bigint, messages bigint)
language sql stable as $$
  select count(distinct c.lease_id), count(*), coalesce(sum(c.leased - c.acked), 0)::bigint
  from (
    select c.lease_id, c.leased, c.acked from skep.cursor c
    where c.leased is not null limit p_limit
  ) c;
$$;
