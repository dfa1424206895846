-- postpone_operation: put back an operation whose attempt failed, or give it up.
-- Takes   p_id: the oldest operation of a partition. p_retries_max: failed attempts before it is
--         given up. p_pause_s: before the first retry; doubles up to p_pause_s_max.
-- Returns its new status, waiting or failed; null if the claim was lost to another worker.
-- Locks   as hold_operations, then as leave_operations.
-- Why     The partition waits behind it, to keep its order. A failed operation keeps its payload
--         and error for an operator; the partition goes on without it.
create function skep.postpone_operation(
  p_id uuid, p_claim_id uuid, p_error text, p_retries_max integer, p_pause_s double precision,
  p_pause_s_max double precision) returns text
language plpgsql as $$
declare
  v_retries integer;
begin
  if not skep.hold_operations(array[p_id], p_claim_id) then
    return null;
  end if;
  update skep.operation o
  set status = 'waiting', claim_id = null, error = p_error, retries = o.retries + 1,
      available_at = skep.now() + make_interval(
        secs => least(p_pause_s * 2 ^ least(o.retries, 30), p_pause_s_max))
  where o.id = p_id
  returning o.retries into v_retries;
  if v_retries <= p_retries_max then
    return 'waiting';
  end if;
  perform skep.leave_operations(array[p_id], 'failed', null, array[p_error]);
  return 'failed';
end $$;
