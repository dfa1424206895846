/*
claim_staged: make sure that staged messages are still there, and that nobody else takes them.

Takes   p_id: ascending.
Returns whether they are the caller's until its transaction ends; false when somebody else is at it,
        or has taken one of them.
Locks   an advisory lock until the transaction ends, or nothing at all; the skep.staged rows in
        order of id.
Why     Whoever stores staged messages drops them in the same transaction, so a message is staged or
        stored, never both, never neither. One session at a time keeps the order of commits. The
        rows are counted as well, because an operator may delete some.
*/
create function skep.claim_staged(p_id bigint[]) returns boolean
language plpgsql as $$
declare
  v_count integer;
begin
  if not pg_try_advisory_xact_lock(hashtext('skep.claim_staged')) then
    return false;
  end if;
  perform 1
  from unnest(p_id) i(id)
  cross join lateral (select 1 from skep.staged s where s.id = i.id for update) s;
  get diagnostics v_count = row_count;
  return v_count = cardinality(p_id);
end $$;
