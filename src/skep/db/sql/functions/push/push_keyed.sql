-- push_keyed: append messages to their partitions and return their offsets.
-- Takes   per message, in parallel arrays: p_partition_id, p_key, p_is_new (its id was just
--         generated, so the key cannot be stored), p_envelope.
-- Returns the offsets in the order of the arrays. Of equal keys in a partition the first is stored;
--         a key already stored inside the queue's window gets its stored offset.
-- Raises  40001 if a partition is gone.
-- Locks   skep.partition rows for no key update, in id order; then as push_distinct.
-- Why     Brokers know what they stored and group their messages themselves; this does both for
--         messages pushed by SQL.
create function skep.push_keyed(
  p_partition_id bigint[], p_key bytea[], p_is_new boolean[], p_envelope bytea[])
returns bigint[]
language plpgsql as $$
declare
  v_partition_id constant bigint[] :=
    array(select distinct u.id from unnest(p_partition_id) u(id) order by u.id);
  v_guaranteed_to bigint[];
  v_guaranteed_since timestamptz[];
  v_sent integer[];              -- the first message of each key
  v_pushed record;
  v_offset bigint[] := '{}';
begin
  perform 1
  from unnest(v_partition_id) i(id)
  cross join lateral (
    select 1 from skep.partition p where p.id = i.id for no key update
  ) p;
  select array_agg(case when v.is_sure then 9223372036854775807 else 0 end order by v.id),
         array_agg(case when v.is_sure then '-infinity'::timestamptz else 'infinity' end
                   order by v.id)
  into v_guaranteed_to, v_guaranteed_since
  from (
    select l.id, skep.guarantee_in_sql(
             l.id, array(select u.key from unnest(p_partition_id, p_key, p_is_new)
                                             u(id, key, is_new)
                         where u.id = l.id and not u.is_new)) as is_sure
    from unnest(v_partition_id) l(id)
  ) v;

  select array_agg(f.item order by f.item) into v_sent
  from (
    select min(u.item)::integer as item
    from unnest(p_partition_id, p_key) with ordinality u(id, key, item)
    group by u.id, u.key
  ) f;
  for v_pushed in
    select p.* from (
      select array_agg(array_position(v_partition_id, p_partition_id[s.item]) order by s.item)
               as partition,
             array_agg(p_key[s.item] order by s.item) as key,
             array_agg(p_envelope[s.item] order by s.item) as envelope
      from unnest(v_sent) s(item)
    ) m
    cross join lateral skep.push_distinct(
      v_partition_id, v_guaranteed_to, v_guaranteed_since, m.partition, m.key, m.envelope) p
  loop
    for v_at in 1..coalesce(cardinality(v_pushed.stored_item), 0) loop
      v_offset[v_sent[v_pushed.stored_item[v_at]]] := v_pushed.first + v_at - 1;
    end loop;
    for v_at in 1..coalesce(cardinality(v_pushed.duplicate_item), 0) loop
      v_offset[v_sent[v_pushed.duplicate_item[v_at]]] := v_pushed.duplicate_offset[v_at];
    end loop;
  end loop;

  if exists (select from unnest(v_sent) s(item) where v_offset[s.item] is null) then
    raise exception using errcode = '40001', message = 'a queue was deleted meanwhile';
  end if;
  return array(
    select v_offset[f.item]
    from unnest(p_partition_id, p_key) with ordinality u(id, key, item)
    join (
      select p_partition_id[s.item] as id, p_key[s.item] as key, s.item from unnest(v_sent) s(item)
    ) f on f.id = u.id and f.key = u.key
    order by u.item);
end $$;
