-- pop_partitions: serve polls of one consumer group that name their partition.
-- Takes   as pop_messages, with p_partition_id (per poll) instead of p_partitions.
-- Returns as take_partitions. No row for a poll that got nothing: its partition is leased, held
--         back or empty, or the group or queue is paused. A row with only poll and partition_id:
--         the queue has no such partition. A row without a poll: as pop_messages.
-- Raises  SK404 if the group does not exist.
-- Locks   the named skep.cursor rows that are ready, skipping locked ones; then as take_partitions.
--         It never waits.
-- Why     Separate from pop_messages, because a named partition is found by its address and must
--         not be searched for among the ready ones. Of several polls for one partition the first
--         gets it. Brokers remember partition ids; a poll for a removed partition must be told, or
--         it would wait for ever.
create function skep.pop_partitions(
  p_group_id integer, p_lease_id uuid[], p_partition_id bigint[], p_batch integer[],
  p_auto_ack boolean[], p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_partition record;
  v_take integer;
  v_group skep.consumer_group;
  v_queue skep.queue;
  v_plan record;
  v_buried integer := 0;
  v_taken_poll integer[] := '{}';         -- null for a partition with nothing to take
  v_taken_id bigint[] := '{}';
  v_taken_place tid[] := '{}';
  v_taken_from bigint[] := '{}';
  v_taken_to bigint[] := '{}';
  v_delivery integer[] := '{}';
  v_done int8multirange[];
  v_rest_until timestamptz[];
  v_has_rules boolean;
begin
  v_group := skep.assert_group(p_group_id);
  select q.* into strict v_queue from skep.queue q where q.id = v_group.queue_id;
  if v_group.is_paused or v_queue.is_paused then
    return;
  end if;
  v_has_rules := skep.has_delivery_rules(v_group, v_queue);
  for v_partition in
    select i.ord::integer as poll, i.batch, i.id, c.place, c.done, p.head, p.pushed_at,
           greatest(c.acked, p.tail - 1) as acked,
           case when p.tail <= c.acked + 1 then c.deliveries else 0 end as deliveries,
           case when p.tail <= c.acked + 1 then c.unanswered else 0 end as unanswered
    from unnest(p_partition_id, p_batch) with ordinality i(id, batch, ord)
    cross join lateral (
      select c.ctid as place, c.acked, c.deliveries, c.unanswered, c.done
      from skep.cursor c
      where c.partition_id = i.id and c.group_id = p_group_id
        -- Written so that the planner cannot search the index of ready partitions for this one.
        and coalesce(c.available_at, 'infinity') <= v_now
      for no key update skip locked
    ) c
    cross join lateral (
      select p.head, p.tail, p.pushed_at from skep.partition p where p.id = i.id offset 0
    ) p
  loop
    continue when v_partition.id = any(v_taken_id);
    v_taken_id := v_taken_id || v_partition.id;
    v_taken_place := v_taken_place || v_partition.place;
    if v_has_rules or v_partition.done is not null then
      v_plan := skep.plan_partition(
        v_group, v_queue, v_partition.id, v_partition.acked, v_partition.done,
        v_partition.unanswered, v_partition.head, v_partition.pushed_at, v_partition.batch, v_now);
      v_take := v_plan.count;
      v_buried := v_buried + v_plan.is_buried::integer;
      v_taken_from := v_taken_from || v_plan.acked;
      v_taken_to := v_taken_to || v_plan.upto;
      v_delivery := v_delivery
        || case when v_plan.acked > v_partition.acked then 1 else v_partition.deliveries + 1 end;
      -- An array starts at its first assigned subscript, which must be 1.
      v_done[1] := v_done[1];
      v_rest_until[1] := v_rest_until[1];
      v_done[cardinality(v_taken_id)] := v_plan.done;
      v_rest_until[cardinality(v_taken_id)] := v_plan.rest_until;
    else
      v_take := least(v_partition.head - v_partition.acked, v_partition.batch);
      v_taken_from := v_taken_from || v_partition.acked;
      v_taken_to := v_taken_to || v_partition.acked + greatest(v_take, 0);
      v_delivery := v_delivery || v_partition.deliveries + 1;
    end if;
    v_taken_poll := v_taken_poll || case when v_take > 0 then v_partition.poll end;
  end loop;
  if cardinality(v_taken_id) > 0 then
    return query select * from skep.take_partitions(
      v_group, v_queue, v_now, v_taken_poll, v_taken_id, v_taken_place, v_taken_from, v_taken_to,
      v_delivery, v_done, v_rest_until, p_lease_id, p_auto_ack, p_lease_s);
  end if;
  if cardinality(v_taken_id) < cardinality(p_partition_id) then
    return query
    select i.ord::integer, i.id, null::text, null::bigint, null::bigint, null::integer,
           null::bigint, null::timestamptz, null::bytea, null::bytea, null::bigint[], null::boolean
    from unnest(p_partition_id) with ordinality i(id, ord)
    left join lateral (
      select true as is_there from skep.partition p
      where p.id = i.id and p.queue_id = v_group.queue_id offset 0
    ) p on true
    where p.is_there is null;
  end if;
  if v_buried > 0 then
    return query
    select null::integer, null::bigint, null::text, null::bigint, null::bigint, v_buried,
           null::bigint, null::timestamptz, null::bytea, null::bytea, null::bigint[],
           null::boolean;
  end if;
end $$;
