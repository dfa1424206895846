-- push_distinct: append messages to partitions, except those already stored.
-- Takes   per message p_partition (1-based position in p_partition_id), p_key, p_envelope; no key
--         twice in a partition whose queue has a window. The rest per partition, as push_segments.
-- Returns one row. push_offset (null: its partition is gone), push_is_duplicate: per message.
--         partition_first (null: nothing was stored), partition_created_at, gap_first, gap_keys,
--         gap_created_at: per partition, as push_segments.
-- Locks   as push_segments, partition by partition; a caller with several locks them all first.
-- Why     push_segments stores nothing in a partition with a duplicate and lets the broker send the
--         rest again. A transaction cannot be sent again in parts, so the rest is stored here,
--         still under the partition's lock and without another probe.
create function skep.push_distinct(
  p_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_partition integer[], p_key bytea[], p_envelope bytea[], p_resolve boolean default false)
returns table (
  push_offset bigint[], push_is_duplicate boolean[],
  partition_first bigint[], partition_created_at timestamptz[],
  gap_first bigint[], gap_keys bytea[], gap_created_at timestamptz[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_sent record;
  v_rest record;
  v_pushed record;
  v_at integer;
begin
  push_offset := array_fill(null::bigint, array[cardinality(p_partition)]);
  push_is_duplicate := array_fill(false, array[cardinality(p_partition)]);
  partition_first := array_fill(null::bigint, array[cardinality(p_partition_id)]);
  partition_created_at := array_fill(null::timestamptz, array[cardinality(p_partition_id)]);
  gap_first := partition_first;
  gap_keys := array_fill(null::bytea, array[cardinality(p_partition_id)]);
  gap_created_at := partition_created_at;
  for v_sent in
    select m.partition, array_agg(m.item::integer order by m.item) as items,
           array_agg(m.key order by m.item) as keys,
           array_agg(m.envelope order by m.item) as envelopes,
           string_agg(m.key, '' order by m.item) as joined_keys
    from unnest(p_partition, p_key, p_envelope) with ordinality m(partition, key, envelope, item)
    group by m.partition order by m.partition
  loop
    v_at := v_sent.partition;
    select r.* into v_pushed
    from skep.join_envelopes(v_sent.envelopes) e
    cross join lateral skep.push_segments(
      array[p_partition_id[v_at]], array[cardinality(v_sent.items)],
      array[p_guaranteed_to[v_at]], array[p_guaranteed_since[v_at]], array[v_sent.joined_keys],
      e.body, p_resolve, null, null, array[cardinality(e.body)], e.row_end) r;
    continue when not found;
    gap_first[v_at] := v_pushed.gap_first;
    gap_keys[v_at] := v_pushed.gap_keys;
    gap_created_at[v_at] := v_pushed.gap_created_at;

    if v_pushed.duplicate_index is not null then
      for i in 1 .. cardinality(v_pushed.duplicate_index) loop
        push_offset[v_sent.items[v_pushed.duplicate_index[i] + 1]] := v_pushed.duplicate_offset[i];
        push_is_duplicate[v_sent.items[v_pushed.duplicate_index[i] + 1]] := true;
      end loop;
      select array_agg(m.item order by m.item) as items,
             string_agg(m.key, '' order by m.item) as joined_keys,
             array_agg(m.envelope order by m.item) as envelopes
      into v_rest
      from unnest(v_sent.items, v_sent.keys, v_sent.envelopes) m(item, key, envelope)
      where not push_is_duplicate[m.item];
      continue when v_rest.items is null;
      v_sent.items := v_rest.items;
      select r.* into strict v_pushed
      from skep.join_envelopes(v_rest.envelopes) e
      cross join lateral skep.push_segments(
        array[p_partition_id[v_at]], array[cardinality(v_rest.items)],
        array[9223372036854775807], array['-infinity'::timestamptz], array[v_rest.joined_keys],
        e.body, false, null, null, array[cardinality(e.body)], e.row_end) r;
    end if;
    partition_first[v_at] := v_pushed.first;
    partition_created_at[v_at] := v_pushed.created_at;
    for i in 1 .. cardinality(v_sent.items) loop
      push_offset[v_sent.items[i]] := v_pushed.first + i - 1;
    end loop;
  end loop;
  return next;
end $$;
