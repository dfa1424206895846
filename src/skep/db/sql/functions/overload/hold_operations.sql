-- hold_operations: lock the operations of a claim, if the claim is still valid.
-- Returns whether it is: all of them wait, and the oldest of each partition belongs to the claim.
-- Locks   the partitions of the operations, as lock_partitions; then skep.operation rows for
--         update, in number order.
-- Why     Between claim and effect the operation may have been taken or cancelled; from here to
--         commit it cannot. Partitions come before operations wherever both are locked.
create function skep.hold_operations(p_id uuid[], p_claim_id uuid) returns boolean
language plpgsql as $$
declare
  v_is_ours boolean;
begin
  perform skep.lock_partitions(array_agg(o.partition_id))
  from unnest(p_id) u(id)
  cross join lateral (
    select o.partition_id from skep.operation o where o.id = u.id offset 0
  ) o;
  select count(*) = cardinality(p_id)
         and count(distinct (l.partition_id, l.type)) = count(*) filter (where l.is_next)
         and bool_and(not l.is_next or l.claim_id = p_claim_id)
  into v_is_ours
  from (
    select o.partition_id, o.type, o.is_next, o.claim_id from skep.operation o
    where o.id = any(p_id) and o.status in ('waiting', 'processing')
    order by o.number for update
  ) l;
  return v_is_ours is true;
end $$;
