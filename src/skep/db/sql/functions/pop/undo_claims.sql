-- undo_claims: take back what polls may have claimed before their connection broke.
-- Takes   p_group_id: null: claims of any group.
-- Returns the number of partitions released.
-- Locks   as release_claims.
-- Model   Delivery!Release
-- Why     After a lost answer it is unknown whether the claim was committed. The cursor remembers
--         the last claim, so it can be undone and the polls served again. One call undoes all
--         claims of a failover, and the index on lease ids finds them.
create function skep.undo_claims(p_group_id integer, p_lease_id uuid[]) returns integer
language sql as $$
  select skep.release_claims(
    array_agg(c.partition_id), array_agg(c.group_id), array_agg(c.lease_id))
  from skep.cursor c
  where c.lease_id = any(p_lease_id) and (c.leased is not null or c.leased_from is not null)
    and (p_group_id is null or c.group_id = p_group_id);
$$;
