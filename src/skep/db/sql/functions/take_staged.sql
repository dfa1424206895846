/*
take_staged: take messages off the staged ones, all of them or none.

Takes   p_id: ascending.
Returns whether they are the caller's now; false when somebody else is at it, or was.
Locks   an advisory lock until the transaction ends, or nothing at all; the skep.staged rows in
        order of id; skep.staged_transaction rows of which nothing is left.
Why     Whoever stores them does so in the same transaction, so a message is staged or stored, never
        both, never neither. One session at a time keeps the order of commits; that alone would be
        enough, and the rows are counted as well because an operator may delete some.
*/
create function skep.take_staged(p_id bigint[]) returns boolean
language plpgsql as $$
declare
  v_count integer;
  v_xid xid8[];
begin
  if not pg_try_advisory_xact_lock(hashtext('skep.take_staged')) then
    return false;
  end if;
  perform 1
  from unnest(p_id) i(id)
  cross join lateral (select 1 from skep.staged s where s.id = i.id for update) s;
  get diagnostics v_count = row_count;
  if v_count < cardinality(p_id) then
    return false;
  end if;

  with taken as (
    delete from skep.staged s where s.id = any(p_id) returning s.xid
  )
  select array_agg(distinct t.xid) into v_xid from taken t;
  delete from skep.staged_transaction t
  where t.xid = any(v_xid) and not exists (select from skep.staged s where s.xid = t.xid);
  return true;
end $$;
