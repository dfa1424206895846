-- measure_leases: what is leased now.
-- Takes   p_limit: partitions to look at.
-- Returns one row; messages: leased and unfinished.
-- Why     The index of leases lists the partitions that have one. An expired lease counts until its
--         partition is claimed again.
create function skep.measure_leases(p_limit integer)
returns table (leases bigint, partitions bigint, messages bigint)
language sql stable as $$
  select count(distinct c.lease_id), count(*), coalesce(sum(c.leased - c.acked), 0)::bigint
  from (
    select c.lease_id, c.leased, c.acked from skep.cursor c
    where c.leased is not null limit p_limit
  ) c;
$$;
