-- drop_staged: delete staged messages that were stored.
-- Takes   p_id: claimed by claim_staged.
-- Locks   the skep.staged_transaction rows that have no message left.
-- Why     A transaction is recorded while one of its messages is staged; it adds none any more.
create function skep.drop_staged(p_id bigint[]) returns void
language plpgsql as $$
declare
  v_xid xid8[];
begin
  with dropped as (
    delete from skep.staged s where s.id = any(p_id) returning s.xid
  )
  select array_agg(distinct d.xid) into v_xid from dropped d;
  delete from skep.staged_transaction t
  where t.xid = any(v_xid) and not exists (select from skep.staged s where s.xid = t.xid);
end $$;
