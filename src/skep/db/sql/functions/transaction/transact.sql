-- transact: acknowledge, push and change keys, all or nothing, and remember the answer.
-- Takes   p_id: the broker's id of this transaction. p_is_repeated: an earlier call with this id
--         may have been executed. p_kv_*: as kv_apply, of a single call, with values as text. The
--         rest as settle_operations.
-- Returns one row. refusal, refused_item: why nothing was done, as settle_operations and
--         refuse_deferred raise it, or kv_precondition; null if it is done, now or by the earlier
--         call. Then the columns of settle_operations; those of partitions are null if it was the
--         earlier call. kv_*: as kv_apply, with values as text; null if there are no keys.
-- Locks   skep.kv_entry rows as kv_apply; then as settle_operations.
-- Why     A refusal is an answer, not an error: it is returned as a row after everything was rolled
--         back. The answer is recorded under p_id in the same transaction, because acks and pushes
--         without ids cannot be recognised afterwards. Keys come first, as they do where an
--         application checks one and then pushes, so that neither waits for the other in a circle,
--         and no partition is held while a key is waited for. What the acks refuse is told before a
--         key that was lost, and with keys also to a client's own repetition, which would change
--         them again. What changed nothing is not recorded: it may be done again. The variant
--         without keys is for brokers of the release before, which run on while instances are
--         restarted one after the other.
create function skep.transact(
  p_id uuid, p_is_repeated boolean, p_kv_ns text[], p_kv_key text[], p_kv_slot integer[],
  p_kv_op text[], p_kv_value text[], p_kv_expect bigint[], p_kv_ttl_s bigint[],
  p_kv_required boolean[], p_kv_min numeric[], p_kv_max numeric[], p_required_lease uuid[],
  p_ack_partition_id bigint[], p_ack_group text[], p_ack_lease_id uuid[], p_ack_offset bigint[],
  p_ack_key bytea[], p_ack_status text[], p_ack_error text[],
  p_push_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_push_partition integer[], p_push_key bytea[], p_push_envelope bytea[])
returns table (
  refusal text, refused_item integer,
  ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
  ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[],
  kv_applied boolean[], kv_reason text[], kv_value text[], kv_version bigint[],
  kv_expires_at timestamptz[], kv_updated_at timestamptz[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_detail text;
  v_is_undone boolean := false;
begin
  if p_is_repeated then
    select a.* into ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
                    push_is_duplicate, kv_applied, kv_reason, kv_value, kv_version,
                    kv_expires_at, kv_updated_at
    from skep.settled_transaction t
    cross join lateral json_to_record(t.answer) a(
      ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
      ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
      kv_applied boolean[], kv_reason text[], kv_value text[], kv_version bigint[],
      kv_expires_at timestamptz[], kv_updated_at timestamptz[])
    where t.id = p_id;
    if found then
      return next;
      return;
    end if;
  end if;

  begin
    if cardinality(p_kv_op) > 0 then
      select k.applied, k.reason, k.value::text[], k.version, k.expires_at, k.updated_at,
             k.is_undone[1]
      into strict kv_applied, kv_reason, kv_value, kv_version, kv_expires_at, kv_updated_at,
                  v_is_undone
      from skep.kv_apply(
        p_kv_ns, p_kv_key, array_fill(1, array[cardinality(p_kv_op)]), p_kv_slot, p_kv_op,
        p_kv_value::jsonb[], p_kv_expect, p_kv_ttl_s, p_kv_required, p_kv_min, p_kv_max) k;
    end if;
    perform skep.refuse_deferred(p_push_partition_id, p_ack_partition_id);
    select s.* into strict
      ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
      push_is_duplicate, partition_first, partition_created_at, gap_first, gap_keys, gap_created_at
    from skep.settle_operations(
      p_required_lease, p_ack_partition_id, p_ack_group, p_ack_lease_id, p_ack_offset, p_ack_key,
      p_ack_status, p_ack_error, p_push_partition_id, p_guaranteed_to, p_guaranteed_since,
      p_push_partition, p_push_key, p_push_envelope,
      coalesce(cardinality(p_kv_op), 0) = 0) s;
    if v_is_undone then
      raise exception using errcode = 'SK409', message = 'kv_precondition', detail = '0';
    end if;
    insert into skep.settled_transaction (id, answer, settled_at)
    select p_id, json_build_object(
      'ack_item', ack_item, 'ack_outcome', ack_outcome, 'ack_released', ack_released,
      'ack_has_more', ack_has_more, 'ack_queue_id', ack_queue_id,
      'push_offset', push_offset, 'push_is_duplicate', push_is_duplicate,
      'kv_applied', kv_applied, 'kv_reason', kv_reason, 'kv_value', kv_value,
      'kv_version', kv_version, 'kv_expires_at', kv_expires_at,
      'kv_updated_at', kv_updated_at), skep.now()
    where cardinality(p_ack_partition_id) > 0 or cardinality(p_push_partition) > 0
       or exists (
         select from unnest(kv_applied, p_kv_op) o(applied, op)
         where o.applied and o.op in ('put', 'incr', 'delete'));
  exception when sqlstate 'SK409' then
    get stacked diagnostics refusal = message_text, v_detail = pg_exception_detail;
    refused_item := v_detail::integer;
  end;
  return next;
end $$;

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
language sql as $$
  select t.refusal, t.refused_item, t.ack_item, t.ack_outcome, t.ack_released, t.ack_has_more,
         t.ack_queue_id, t.push_offset, t.push_is_duplicate, t.partition_first,
         t.partition_created_at, t.gap_first, t.gap_keys, t.gap_created_at
  from skep.transact(
    p_id, p_is_repeated, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
    p_required_lease, p_ack_partition_id, p_ack_group, p_ack_lease_id, p_ack_offset, p_ack_key,
    p_ack_status, p_ack_error, p_push_partition_id, p_guaranteed_to, p_guaranteed_since,
    p_push_partition, p_push_key, p_push_envelope) t;
$$;
