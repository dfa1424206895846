/*
pop_partitions: serve polls of one consumer group that ask for a certain lane each.

Takes   as pop_messages, with p_partition_id (the lane of each poll) instead of p_lanes.
Returns as take_lanes. No row for a poll that got nothing: its lane is leased, delayed or empty.
Raises  SK404 when the group does not exist (any more).
Locks   the skep.cursor rows named, if ready, skipping locked ones; then as take_lanes. It never
        waits for a lock.
Why     Apart from pop_messages because a lane asked for by name is found by its address and must
        not be searched for among the ready ones. Of several polls for one lane the first gets it.
*/
create function skep.pop_partitions(
  p_group_id integer, p_lease_id uuid[], p_partition_id bigint[], p_batch integer[],
  p_auto_ack boolean[], p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_lane record;
  v_take integer;
  v_taken_poll integer[] := '{}';
  v_taken_id bigint[] := '{}';
  v_taken_place tid[] := '{}';
  v_taken_to bigint[] := '{}';
  v_delivery integer[] := '{}';
begin
  perform skep.assert_group(p_group_id);
  for v_lane in
    select i.ord::integer as poll, i.batch, i.id, c.place, c.deliveries,
           greatest(c.acked, p.tail - 1) as acked, p.head
    from unnest(p_partition_id, p_batch) with ordinality i(id, batch, ord)
    cross join lateral (
      select c.ctid as place, c.acked, c.deliveries from skep.cursor c
      where c.partition_id = i.id and c.group_id = p_group_id
        -- Said like this, the index of ready lanes cannot serve and be searched for this one.
        and coalesce(c.available_at, 'infinity') <= v_now
      for no key update skip locked
    ) c
    cross join lateral (
      select p.head, p.tail from skep.partition p where p.id = i.id offset 0
    ) p
  loop
    continue when v_lane.id = any(v_taken_id);
    v_take := least(v_lane.head - v_lane.acked, v_lane.batch);
    v_taken_poll := v_taken_poll || case when v_take > 0 then v_lane.poll end;
    v_taken_id := v_taken_id || v_lane.id;
    v_taken_place := v_taken_place || v_lane.place;
    v_taken_to := v_taken_to || v_lane.acked + greatest(v_take, 0);
    v_delivery := v_delivery || v_lane.deliveries + 1;
  end loop;
  if cardinality(v_taken_id) > 0 then
    return query select * from skep.take_lanes(
      p_group_id, v_now, v_taken_poll, v_taken_id, v_taken_place, v_taken_to, v_delivery,
      p_lease_id, p_auto_ack, p_lease_s);
  end if;
end $$;
