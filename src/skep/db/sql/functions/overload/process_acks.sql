-- process_acks: execute deferred acks and complete their operations in one transaction.
-- Takes   p_operation_id: operations of a claim, in order. p_row_operation: per ack, the 1-based
--         position of its operation. The rest as ack_messages.
-- Returns as ack_messages; a single row of nulls if the claim was lost to another worker.
-- Locks   as hold_operations, then as ack_messages, then as leave_operations.
-- Why     As process_pushes. Partitions are locked first: their counters change at the end, and a
--         session that holds a cursor never waits for a partition.
create function skep.process_acks(
  p_operation_id uuid[], p_claim_id uuid, p_row_operation integer[],
  p_partition_id bigint[], p_group text[], p_lease_id uuid[], p_offset bigint[], p_key bytea[],
  p_status text[], p_error text[])
returns table (
  item integer, outcome text, queue_id integer, queue_name text, partition_name text,
  lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_outcome text[] := array_fill(null::text, array[cardinality(p_partition_id)]);
  v_released boolean[] := array_fill(false, array[cardinality(p_partition_id)]);
begin
  if not skep.hold_operations(p_operation_id, p_claim_id) then
    return next;
    return;
  end if;
  for item, outcome, queue_id, queue_name, partition_name, lease_released, has_more in
    select * from skep.ack_messages(
      p_partition_id, p_group, p_lease_id, p_offset, p_key, p_status, p_error, true)
  loop
    v_outcome[item] := outcome;
    v_released[item] := lease_released;
    return next;
  end loop;
  perform skep.leave_operations(
    array_agg(p_operation_id[a.operation]), 'completed', array_agg(a.answer), null)
  from (
    select u.operation,
           json_agg(json_build_array(coalesce(v_outcome[u.item], 'no_group'), v_released[u.item])
             order by u.item)::text as answer
    from unnest(p_row_operation) with ordinality u(operation, item) group by u.operation
  ) a;
end $$;
