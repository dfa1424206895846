-- undo_claims: take back what polls may have claimed before their connection broke.
-- Takes   p_group_id; p_lease_id: the leases of those polls.
-- Returns the number of partitions released.
-- Locks   as release_claims.
-- Why     After a lost answer it is unknown whether the claim was committed. The cursor remembers
--         the last claim, so it can be undone and the polls served again. This reads every cursor
--         of the group, but only after a connection loss.
create function skep.undo_claims(p_group_id integer, p_lease_id uuid[]) returns integer
language sql as $$
  select skep.release_claims(
    array_agg(c.partition_id), array_agg(c.group_id), array_agg(c.lease_id))
  from skep.cursor c
  where c.group_id = p_group_id and c.lease_id = any(p_lease_id);
$$;
