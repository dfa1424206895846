/*
drop_staged: take messages off the staged ones.

Takes   p_id: claimed by claim_staged, and stored by now.
Returns nothing.
Locks   the skep.staged_transaction rows of which nothing is left.
Why     A transaction is on record as long as one of its messages is staged. It has committed, so
        none can be added.
*/
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
