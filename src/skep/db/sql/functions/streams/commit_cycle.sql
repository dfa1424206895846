-- commit_cycle: one cycle of a stream: change its state, push results, acknowledge the source.
-- Takes   p_id, p_is_repeated as transact. p_query_id to p_version, p_bytes_max as apply_state.
--         p_release: end the lease although part of it is unacknowledged; p_release_delay_ms: and
--         serve that part after this time. The rest as settle_operations; at most one ack.
-- Returns one row. refusal, refused_item as settle_operations and apply_state raise them, or
--         no_query, no_partition, or replayed: the source was acknowledged before, and nothing was
--         done. Then the columns of settle_operations, queue_name and queue_id of the source, and
--         state_count (operations applied).
-- Locks   skep.stream_query for key share; skep.stream_shard for update; then as settle_operations.
-- Why     The shard's row serialises its cycles before anything else is locked, so it adds no
--         deadlock. A cycle whose ack is already done is a repetition: its client is told so,
--         without a second effect. A cycle refused because its window was closed computed from lost
--         state; its lease ends, so that the batch comes again at once. A back-off goes on.
create function skep.commit_cycle(
  p_id uuid, p_is_repeated boolean, p_query_id uuid, p_partition_id bigint, p_release boolean,
  p_release_delay_ms integer, p_kind text[], p_key text[], p_value text[],
  p_window_end double precision[], p_version bigint[], p_bytes_max bigint,
  p_required_lease uuid[], p_ack_partition_id bigint[], p_ack_group text[], p_ack_lease_id uuid[],
  p_ack_offset bigint[], p_ack_key bytea[], p_ack_status text[], p_ack_error text[],
  p_push_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_push_partition integer[], p_push_key bytea[], p_push_envelope bytea[])
returns table (
  refusal text, refused_item integer,
  ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
  ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[],
  queue_name text, queue_id integer, state_count integer)
language plpgsql as $$
#variable_conflict use_column
declare
  v_detail text;
  v_has_ack constant boolean := cardinality(p_ack_partition_id) > 0;
begin
  select q.name, q.id into queue_name, queue_id
  from skep.partition p join skep.queue q on q.id = p.queue_id where p.id = p_partition_id;
  if not found then
    -- Its state is meaningless now.
    perform skep.drop_stream_state(array[p_partition_id]);
    refusal := 'no_partition';
    return next;
    return;
  end if;
  if p_is_repeated then
    select a.* into ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
                    push_is_duplicate, state_count
    from skep.settled_transaction t
    cross join lateral json_to_record(t.answer) a(
      ack_item integer[], ack_outcome text[], ack_released boolean[], ack_has_more boolean[],
      ack_queue_id integer[], push_offset bigint[], push_is_duplicate boolean[],
      state_count integer)
    where t.id = p_id;
    if found then
      return next;
      return;
    end if;
  end if;

  begin
    perform 1 from skep.stream_query q where q.id = p_query_id for key share;
    if not found then
      raise exception using errcode = 'SK409', message = 'no_query', detail = '1';
    end if;
    insert into skep.stream_shard (query_id, partition_id) values (p_query_id, p_partition_id)
    on conflict (query_id, partition_id) do nothing;
    perform 1 from skep.stream_shard s
    where s.query_id = p_query_id and s.partition_id = p_partition_id for update;

    perform skep.refuse_deferred(p_push_partition_id, p_ack_partition_id);
    select s.* into strict
      ack_item, ack_outcome, ack_released, ack_has_more, ack_queue_id, push_offset,
      push_is_duplicate, partition_first, partition_created_at, gap_first, gap_keys, gap_created_at
    from skep.settle_operations(
      p_required_lease, p_ack_partition_id, p_ack_group, p_ack_lease_id, p_ack_offset, p_ack_key,
      p_ack_status, p_ack_error, p_push_partition_id, p_guaranteed_to, p_guaranteed_since,
      p_push_partition, p_push_key, p_push_envelope) s;
    if ack_outcome[1] = 'noop' then
      raise exception using errcode = 'SK409', message = 'already_done', detail = '1';
    end if;
    state_count := skep.apply_state(
      p_query_id, p_partition_id, p_kind, p_key, p_value, p_window_end, p_version, v_has_ack,
      p_bytes_max);
    if v_has_ack and p_release and not ack_released[1] then
      update skep.cursor c
      set leased = null, leased_from = null, nacked = null, retry_at = null,
          available_at = greatest(
            skep.now() + p_release_delay_ms * interval '1 millisecond', c.retry_at)
      from skep.consumer_group g
      where g.queue_id = c.queue_id and g.name = p_ack_group[1] and c.group_id = g.id
        and c.partition_id = p_ack_partition_id[1];
      ack_released[1] := true;
      ack_has_more[1] := true;
    end if;
    insert into skep.settled_transaction (id, answer, settled_at)
    values (p_id, json_build_object(
      'ack_item', ack_item, 'ack_outcome', ack_outcome, 'ack_released', ack_released,
      'ack_has_more', ack_has_more, 'ack_queue_id', ack_queue_id,
      'push_offset', push_offset, 'push_is_duplicate', push_is_duplicate,
      'state_count', state_count), skep.now());
  exception when sqlstate 'SK409' then
    get stacked diagnostics refusal = message_text, v_detail = pg_exception_detail;
    refused_item := v_detail::integer;
    if refusal = 'already_done' and p_ack_status[1] = 'completed' then
      refusal := 'replayed';
    elsif refusal in ('state_gone', 'state_changed') and v_has_ack then
      update skep.stream_shard s set closed_keys = null
      where s.query_id = p_query_id and s.partition_id = p_partition_id
        and s.closed_keys is not null;
      update skep.cursor c
      set leased = null, leased_from = null, nacked = null, retry_at = null,
          available_at = greatest(skep.now(), c.retry_at)
      from skep.consumer_group g
      where g.queue_id = c.queue_id and g.name = p_ack_group[1] and c.group_id = g.id
        and c.partition_id = p_ack_partition_id[1]
        and c.lease_id = p_ack_lease_id[1] and c.leased is not null;
    end if;
  end;
  return next;
end $$;
