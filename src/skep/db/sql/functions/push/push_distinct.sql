-- push_distinct: append messages to partitions, except those already stored.
-- Takes   per partition, in parallel arrays: p_partition_id (ascending, no id twice),
--         p_guaranteed_to, p_guaranteed_since as push_segments; per message: p_partition (1-based
--         position in p_partition_id), p_key, p_envelope; no key twice in a partition. p_resolve as
--         push_segments.
-- Returns per existing partition with messages: partition (position), stored_item and
--         duplicate_item (1-based positions of its messages, in order), first and created_at of
--         what was stored, duplicate_offset, gap_first, gap_keys, gap_created_at as push_segments.
-- Locks   as push_segments, partition by partition; a caller with several locks them all first.
-- Why     push_segments stores nothing in a partition with a duplicate and lets the broker send the
--         rest again. A transaction cannot be sent again in parts, so the rest is stored here,
--         still under the partition's lock and without another probe.
create function skep.push_distinct(
  p_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_partition integer[], p_key bytea[], p_envelope bytea[], p_resolve boolean default false)
returns table (
  partition integer, stored_item integer[], first bigint, created_at timestamptz,
  duplicate_item integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_partition record;
  v_rest record;
  v_pushed record;
begin
  for v_partition in
    select m.partition, array_agg(m.item::integer order by m.item) as items,
           array_agg(m.key order by m.item) as keys,
           array_agg(m.envelope order by m.item) as envelopes,
           string_agg(m.key, '' order by m.item) as joined_keys,
           '['::bytea || string_agg(m.envelope, ',' order by m.item) || ']' as body
    from unnest(p_partition, p_key, p_envelope) with ordinality m(partition, key, envelope, item)
    group by m.partition order by m.partition
  loop
    partition := v_partition.partition;
    stored_item := v_partition.items;
    first := null; created_at := null;
    duplicate_item := null; duplicate_offset := null;
    select * into v_pushed from skep.push_segments(
      array[p_partition_id[partition]], array[cardinality(stored_item)],
      array[p_guaranteed_to[partition]], array[p_guaranteed_since[partition]],
      array[v_partition.joined_keys], array[v_partition.body], p_resolve);
    continue when not found;
    gap_first := v_pushed.gap_first;
    gap_keys := v_pushed.gap_keys;
    gap_created_at := v_pushed.gap_created_at;

    if v_pushed.duplicate_index is not null then
      select array_agg(v_partition.items[d.index + 1] order by d.index),
             array_agg(d.at order by d.index)
      into duplicate_item, duplicate_offset
      from unnest(v_pushed.duplicate_index, v_pushed.duplicate_offset) d(index, at);
      select array_agg(m.item order by m.item) as items,
             string_agg(m.key, '' order by m.item) as joined_keys,
             '['::bytea || string_agg(m.envelope, ',' order by m.item) || ']' as body
      into v_rest
      from unnest(v_partition.items, v_partition.keys, v_partition.envelopes) m(item, key, envelope)
      where m.item <> all(duplicate_item);
      stored_item := v_rest.items;
      if stored_item is not null then
        select * into strict v_pushed from skep.push_segments(
          array[p_partition_id[partition]], array[cardinality(stored_item)],
          array[9223372036854775807], array['-infinity'::timestamptz],
          array[v_rest.joined_keys], array[v_rest.body], false);
      end if;
    end if;
    first := v_pushed.first;
    created_at := v_pushed.created_at;
    return next;
  end loop;
end $$;
