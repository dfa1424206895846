-- push_letters: push the messages of dead letters, except those already pushed.
-- Takes   per letter, in parallel arrays ordered by partition and id: p_letter_id, p_partition_id,
--         p_key, p_envelope.
-- Returns per letter whose partition exists: letter_id, partition_id, message_offset, is_duplicate
--         (then message_offset is that of the stored message).
-- Locks   as push_segments.
-- Why     push_segments stores nothing in a partition with a duplicate, and names the duplicates.
--         The partition stays locked, so the second round finds none; a third would mean that two
--         letters share a key.
create function skep.push_letters(
  p_letter_id bigint[], p_partition_id bigint[], p_key bytea[], p_envelope bytea[])
returns table (
  letter_id bigint, partition_id bigint, message_offset bigint, is_duplicate boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_todo integer[] := array(select g from generate_subscripts(p_letter_id, 1) g);
  v_lot record;
  v_index integer;
begin
  for v_round in 1..2 loop
    exit when cardinality(v_todo) = 0;
    for v_lot in
      with lot as (
        select p_partition_id[t.item] as id, array_agg(t.item order by t.item) as items,
               string_agg(p_key[t.item], ''::bytea order by t.item) as keys,
               '['::bytea || string_agg(p_envelope[t.item], ','::bytea order by t.item)
                 || ']'::bytea as body
        from unnest(v_todo) t(item)
        group by p_partition_id[t.item]
      ),
      lots as (
        select array_agg(l.id order by l.id) as ids,
               array_agg(cardinality(l.items) order by l.id) as counts,
               array_agg(0::bigint) as guaranteed_to,
               array_agg('infinity'::timestamptz) as guaranteed_since,
               array_agg(l.keys order by l.id) as keys, array_agg(l.body order by l.id) as bodies
        from lot l
      )
      select l.items, s.first, s.duplicate_index, s.duplicate_offset
      from lots
      cross join lateral skep.push_segments(
        lots.ids, lots.counts, lots.guaranteed_to, lots.guaranteed_since, lots.keys, lots.bodies,
        false) s
      join lot l on l.id = s.partition_id
    loop
      if v_lot.first is not null then
        v_todo := array(select unnest(v_todo) except select unnest(v_lot.items));
        return query
        select p_letter_id[i.item], p_partition_id[i.item], v_lot.first + i.position - 1, false
        from unnest(v_lot.items) with ordinality i(item, position);
        continue;
      end if;
      for v_index in 1..cardinality(v_lot.duplicate_index) loop
        letter_id := p_letter_id[v_lot.items[v_lot.duplicate_index[v_index] + 1]];
        partition_id := p_partition_id[v_lot.items[v_lot.duplicate_index[v_index] + 1]];
        message_offset := v_lot.duplicate_offset[v_index];
        is_duplicate := true;
        v_todo := array_remove(v_todo, v_lot.items[v_lot.duplicate_index[v_index] + 1]);
        return next;
      end loop;
    end loop;
  end loop;
end $$;
