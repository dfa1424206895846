/*
cancel_operation: let an operation end that waits or was given up.

Takes   p_id.
Returns cancelled, unknown (no such operation) or unfit (it is in work or has ended).
Locks   its skep.partition row for no key update; the skep.operation row; then as leave_operations.
Why     One in work may be done already; whoever has it says what became of it. That is also true of
        one whose claim ran out, until somebody else takes it.
*/
create function skep.cancel_operation(p_id uuid) returns text
language plpgsql as $$
#variable_conflict use_column
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
