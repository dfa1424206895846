-- claim_staged: lock staged messages for this transaction, if they are still there.
-- Takes   p_id: ascending.
-- Returns true if they are the caller's until its transaction ends; false if another session is at
--         work or has taken one of them.
-- Locks   an advisory lock, or nothing at all; then the skep.staged rows for update, in id order.
-- Why     Staged messages are stored and deleted in one transaction, so a message is staged or
--         stored, never both, never neither. One session at a time keeps the order of commits. Rows
--         are counted, because an operator may delete some.
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
