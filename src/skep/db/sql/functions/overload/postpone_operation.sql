/*
postpone_operation: put an operation back whose attempt failed, or give it up.

Takes   p_id, p_claim_id: the oldest operation of a partition, and the claim that had it. p_error: why.
        p_retries_max: attempts that may fail before it is given up. p_pause_s: how long to wait
        before the first repetition; it doubles, up to p_pause_s_max.
Returns its status now, waiting or failed; null when it is in other hands.
Locks   as hold_operations, then as leave_operations.
Why     While it waits the partition waits behind it: order before speed. One that is given up stays, with
        its payload and its error, for somebody to look at; the partition goes on without it.
*/
create function skep.postpone_operation(
  p_id uuid, p_claim_id uuid, p_error text, p_retries_max integer, p_pause_s double precision,
  p_pause_s_max double precision) returns text
language plpgsql as $$
#variable_conflict use_column
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
