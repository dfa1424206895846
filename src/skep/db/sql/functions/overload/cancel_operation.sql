-- cancel_operation: cancel a deferred operation that waits or failed.
-- Returns cancelled, unknown (no such operation) or unfit (it is being processed or has ended).
-- Locks   its skep.partition row for no key update; the skep.operation row for update; then as
--         leave_operations.
-- Why     One that is being processed may already be done, even if its claim expired.
create function skep.cancel_operation(p_id uuid) returns text
language plpgsql as $$
declare
  v_operation skep.operation;
begin
  perform 1 from skep.partition p
  where p.id = (select o.partition_id from skep.operation o where o.id = p_id)
  for no key update;
  select * into v_operation from skep.operation o where o.id = p_id for update;
  if not found then
    return 'unknown';
  elsif v_operation.status = 'failed' then
    update skep.operation o set status = 'cancelled', payload = null where o.id = p_id;
    perform skep.count_operations(
      array[v_operation.partition_id, v_operation.partition_id],
      array[v_operation.type, v_operation.type], array['failed', 'cancelled'],
      array[-1, 1]::bigint[], array[-v_operation.bytes, v_operation.bytes]::bigint[]);
    return 'cancelled';
  elsif v_operation.status <> 'waiting' then
    return 'unfit';
  end if;
  perform skep.leave_operations(array[p_id], 'cancelled', null, null);
  return 'cancelled';
end $$;
