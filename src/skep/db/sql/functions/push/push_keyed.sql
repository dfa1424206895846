-- push_keyed: append messages to their partitions and return their offsets.
-- Takes   per message; p_is_new: its id was just generated, so the key cannot be stored.
-- Returns the offsets in the order of the arrays. Of equal keys in a partition the first is stored,
--         and a key already stored inside the queue's window gets its stored offset; without a
--         window all are stored.
-- Raises  40001 if a partition is gone.
-- Locks   as lock_partitions; then as push_distinct.
-- Why     Brokers know what they stored and group their messages; this does both for SQL.
create function skep.push_keyed(
  p_partition_id bigint[], p_key bytea[], p_is_new boolean[], p_envelope bytea[])
returns bigint[]
language plpgsql as $$
declare
  v_partition_id constant bigint[] :=
    array(select distinct u.id from unnest(p_partition_id) u(id) order by u.id);
  v_guaranteed_to bigint[];
  v_guaranteed_since timestamptz[];
  v_first integer[];             -- per message, the one that is stored for it
  v_sent integer[];              -- those
  v_pushed bigint[];             -- and their offsets
begin
  perform skep.lock_partitions(v_partition_id);
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

  select array_agg(f.first order by f.item),
         array_agg(f.first order by f.item) filter (where f.first = f.item)
  into v_first, v_sent
  from (
    select u.item, min(u.item) over (
             partition by u.id, u.key, case when w.dedup_window_s = 0 then u.item end)::integer
             as first
    from unnest(p_partition_id, p_key) with ordinality u(id, key, item)
    left join (
      select p.id, q.dedup_window_s
      from skep.partition p join skep.queue q on q.id = p.queue_id
      where p.id = any(v_partition_id)
    ) w on w.id = u.id
  ) f;
  select p.push_offset into v_pushed
  from (
    select array_agg(array_position(v_partition_id, p_partition_id[s.item]) order by s.item)
             as partition,
           array_agg(p_key[s.item] order by s.item) as key,
           array_agg(p_envelope[s.item] order by s.item) as envelope
    from unnest(v_sent) s(item)
  ) m
  cross join lateral skep.push_distinct(
    v_partition_id, v_guaranteed_to, v_guaranteed_since, m.partition, m.key, m.envelope) p
  where m.key is not null;
  if array_position(v_pushed, null) is not null then
    raise exception using errcode = '40001', message = 'a queue was deleted meanwhile';
  end if;
  return array(
    select s.at
    from unnest(v_first) with ordinality u(first, item)
    join unnest(v_sent, v_pushed) s(item, at) on s.item = u.first
    order by u.item);
end $$;
