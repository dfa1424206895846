-- apply_state: change state rows of one shard, in order.
-- Takes   p_query_id, p_partition_id: the shard. Per operation, in parallel arrays: p_kind (upsert
--         or delete), p_version (null, or the version the row must have; 0: it must not exist).
--         p_has_ack: the cycle acknowledges messages. p_bytes_max: of a growing shard.
-- Returns how many operations were applied: all of them.
-- Raises  SK409 with the 1-based position as detail: state_gone (the row to delete is missing, or
--         was flushed since the shard was read), state_changed (another version), shard_full.
-- Locks   none; the caller holds the skep.stream_shard row.
-- Why     Closing a window deletes its row and emits its result. A missing row was closed by
--         another runner, and its result must not be emitted again. Deleting a missing row is
--         harmless only outside windows (whose keys hold U+001F), in cycles fenced by the lease of
--         their messages. Such a cycle may also restore a row that a flush has just emitted,
--         because it read the shard before; closed_keys tells.
create function skep.apply_state(
  p_query_id uuid, p_partition_id bigint, p_kind text[], p_key text[], p_value text[],
  p_window_end double precision[], p_version bigint[], p_has_ack boolean, p_bytes_max bigint)
returns integer
language plpgsql as $$
declare
  v_shard skep.stream_shard;
  v_row record;
  v_op record;
  v_bytes_before bigint;
  v_closed text[] := '{}';
  v_closed_max constant integer := 10000;
begin
  select * into strict v_shard from skep.stream_shard s
  where s.query_id = p_query_id and s.partition_id = p_partition_id;
  v_bytes_before := v_shard.byte_count;

  for v_op in
    select o.* from unnest(p_kind, p_key, p_value, p_window_end, p_version)
      with ordinality o(kind, key, value, window_end, version, item)
  loop
    select octet_length(s.key) + octet_length(s.value::text) as bytes, s.version into v_row
    from skep.stream_state s
    where s.query_id = p_query_id and s.partition_id = p_partition_id and s.key = v_op.key;
    if p_has_ack and v_op.key = any(v_shard.closed_keys) then
      raise exception using errcode = 'SK409', message = 'state_gone', detail = v_op.item::text;
    elsif v_op.version <> coalesce(v_row.version, 0) then
      raise exception using errcode = 'SK409', message = 'state_changed', detail = v_op.item::text;
    end if;

    if v_op.kind = 'delete' then
      if v_row.version is null then
        continue when p_has_ack and strpos(v_op.key, chr(31)) = 0;
        raise exception using errcode = 'SK409', message = 'state_gone', detail = v_op.item::text;
      end if;
      delete from skep.stream_state s
      where s.query_id = p_query_id and s.partition_id = p_partition_id and s.key = v_op.key;
      v_shard.row_count := v_shard.row_count - 1;
      v_closed := v_closed || v_op.key;
    else
      v_shard.version := v_shard.version + 1;
      insert into skep.stream_state (
        query_id, partition_id, key, value, window_end, version, updated_at)
      values (p_query_id, p_partition_id, v_op.key, v_op.value::json, v_op.window_end,
              v_shard.version, skep.now())
      on conflict (query_id, partition_id, key) do update
      set value = excluded.value, window_end = excluded.window_end, version = excluded.version,
          updated_at = excluded.updated_at;
      v_shard.row_count := v_shard.row_count + (v_row.version is null)::integer;
      v_shard.byte_count := v_shard.byte_count + octet_length(v_op.key) + octet_length(v_op.value);
    end if;
    v_shard.byte_count := v_shard.byte_count - coalesce(v_row.bytes, 0);
  end loop;

  if v_shard.byte_count > p_bytes_max and v_shard.byte_count > v_bytes_before then
    raise exception using errcode = 'SK409', message = 'shard_full',
      detail = cardinality(p_kind)::text;
  end if;
  -- After a cycle with an ack its runner reads again before the next.
  v_closed := case when not p_has_ack then nullif(v_shard.closed_keys || v_closed, '{}') end;
  if cardinality(p_kind) > 0 or v_closed is distinct from v_shard.closed_keys then
    update skep.stream_shard s
    set row_count = v_shard.row_count, byte_count = v_shard.byte_count, version = v_shard.version,
        closed_keys = v_closed[greatest(cardinality(v_closed) - v_closed_max + 1, 1):],
        updated_at = skep.now()
    where s.query_id = p_query_id and s.partition_id = p_partition_id;
  end if;
  return cardinality(p_kind);
end $$;
