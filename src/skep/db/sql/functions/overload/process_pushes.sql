-- process_pushes: execute deferred pushes and complete their operations in one transaction.
-- Takes   p_operation_id: operations of a claim, in order. p_message_operation: per message, the
--         1-based position of its operation. p_place: per message, the 0-based position of it, or
--         of the earlier message with its key. The rest as settle_operations.
-- Returns as transact. refusal is claim_lost if the claim was lost to another worker, or a
--         partition of the operations is not among those given or is gone.
-- Locks   as hold_operations, then as settle_operations, then as leave_operations.
-- Why     One transaction for both: an operation is executed once, whatever crashes.
create function skep.process_pushes(
  p_operation_id uuid[], p_claim_id uuid, p_message_operation integer[], p_place integer[],
  p_required_lease uuid[], p_ack_partition_id bigint[], p_ack_group text[], p_ack_lease_id uuid[],
  p_ack_offset bigint[], p_ack_key bytea[], p_ack_status text[], p_ack_error text[],
  p_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_push_partition integer[], p_push_key bytea[], p_push_envelope bytea[])
returns table (
  refusal text, refused_item integer,
  ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
  ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[])
language plpgsql as $$
#variable_conflict use_column
begin
  begin
    if not skep.hold_operations(p_operation_id, p_claim_id) then
      raise exception using errcode = 'SK409', message = 'claim_lost', detail = '1';
    end if;
    if exists (
      select from skep.operation o
      where o.id = any(p_operation_id) and o.partition_id <> all(p_partition_id))
    then
      raise exception using errcode = 'SK409', message = 'claim_lost', detail = '1';
    end if;
    select s.* into strict
      ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
      push_is_duplicate, partition_first, partition_created_at, gap_first, gap_keys, gap_created_at
    from skep.settle_operations(
      p_required_lease, p_ack_partition_id, p_ack_group, p_ack_lease_id, p_ack_offset, p_ack_key,
      p_ack_status, p_ack_error, p_partition_id, p_guaranteed_to, p_guaranteed_since,
      p_push_partition, p_push_key, p_push_envelope) s;
    perform skep.leave_operations(
      array_agg(p_operation_id[a.operation]), 'completed', array_agg(a.answer), null)
    from (
      select m.operation,
             json_agg(json_build_array(
               push_offset[m.place + 1], push_is_duplicate[m.place + 1] or m.is_twin)
               order by m.item)::text as answer
      from (
        select u.operation, u.place, u.item,
               row_number() over (partition by u.place order by u.item) > 1 as is_twin
        from unnest(p_message_operation, p_place) with ordinality u(operation, place, item)
      ) m
      group by m.operation
    ) a;
  exception when sqlstate 'SK409' then
    -- The caller must not recreate the partition: deferred operations end with their queue.
    refusal := 'claim_lost';
    refused_item := 1;
  end;
  return next;
end $$;
