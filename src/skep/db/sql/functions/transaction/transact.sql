-- transact: acknowledge and push, all or nothing, and remember the answer.
-- Takes   p_id: the broker's id of this transaction. p_is_repeated: an earlier call with this id
--         may have been executed. The rest as settle_operations.
-- Returns one row. refusal, refused_item: why nothing was done, as settle_operations and
--         refuse_deferred raise it; null if it is done, now or by the earlier call. Then the
--         columns of settle_operations; those of partitions are null if it was the earlier call.
-- Locks   as settle_operations.
-- Why     A refusal is an answer, not an error: it is returned as a row after everything was rolled
--         back. The answer is recorded under p_id in the same transaction, because acks and pushes
--         without ids cannot be recognised afterwards.
create function skep.transact(
  p_id uuid, p_is_repeated boolean, p_required_lease uuid[],
  p_ack_partition_id bigint[], p_ack_group text[], p_ack_lease_id uuid[], p_ack_offset bigint[],
  p_ack_key bytea[], p_ack_status text[], p_ack_error text[],
  p_push_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_push_partition integer[], p_push_key bytea[], p_push_envelope bytea[])
returns table (
  refusal text, refused_item integer,
  ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
  ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_detail text;
begin
  if p_is_repeated then
    select a.* into ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
                    push_is_duplicate
    from skep.settled_transaction t
    cross join lateral json_to_record(t.answer) a(
      ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
      ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[])
    where t.id = p_id;
    if found then
      return next;
      return;
    end if;
  end if;

  begin
    perform skep.refuse_deferred(p_push_partition_id, p_ack_partition_id);
    select s.* into strict
      ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
      push_is_duplicate, partition_first, partition_created_at, gap_first, gap_keys, gap_created_at
    from skep.settle_operations(
      p_required_lease, p_ack_partition_id, p_ack_group, p_ack_lease_id, p_ack_offset, p_ack_key,
      p_ack_status, p_ack_error, p_push_partition_id, p_guaranteed_to, p_guaranteed_since,
      p_push_partition, p_push_key, p_push_envelope) s;
    insert into skep.settled_transaction (id, answer, settled_at)
    values (p_id, json_build_object(
      'ack_item', ack_item, 'ack_outcome', ack_outcome, 'ack_released', ack_released,
      'ack_has_more', ack_has_more, 'ack_queue_id', ack_queue_id,
      'push_offset', push_offset, 'push_is_duplicate', push_is_duplicate), skep.now());
  exception when sqlstate 'SK409' then
    get stacked diagnostics refusal = message_text, v_detail = pg_exception_detail;
    refused_item := v_detail::integer;
  end;
  return next;
end $$;
