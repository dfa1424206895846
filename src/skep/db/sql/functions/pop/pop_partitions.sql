-- pop_partitions: serve polls of one consumer group that name their partition.
-- Takes   as pop_messages, with p_partition_id (per poll) instead of p_partitions.
-- Returns as pop_messages. No row for a poll that got nothing: its partition is leased, held
--         back or empty, or the group or queue is paused. A row with only poll and partition_id:
--         the queue has no such partition. A row without a poll: as pop_messages.
-- Raises  SK404 if the group does not exist.
-- Locks   ready skep.cursor rows, skipping locked ones; then as take_partitions. It never waits.
-- Model   Delivery!Claim
-- Why     A named partition is found by its address, not searched for among the ready ones. Of
--         several polls for one partition the first gets it. Brokers remember partition ids; a poll
--         for a removed partition must be told, or it would wait for ever. The variant without counts is
--         as that of pop_messages.
create function skep.pop_partitions(
  p_group_id integer, p_lease_id uuid[], p_partition_id bigint[], p_batch integer[],
  p_auto_ack boolean[], p_lease_s integer[], p_counted boolean, p_bytes_max bigint default null)
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean, counts bigint[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_group skep.consumer_group;
  v_queue skep.queue;
  v_has_rules boolean;
  v_buried integer;
  v_taken_poll integer[];                 -- null for a partition with nothing to take
  v_taken_id bigint[];
  v_taken_place tid[];
  v_taken_from bigint[];
  v_taken_to bigint[];
  v_done int8multirange[];
  v_rest_until timestamptz[];
  v_bytes_possible bigint;
  v_bytes_left bigint := p_bytes_max;
  v_fit record;
begin
  v_group := skep.assert_group(p_group_id);
  select q.* into strict v_queue from skep.queue q where q.id = v_group.queue_id;
  if v_group.is_paused or v_queue.is_paused then
    return;
  end if;
  v_has_rules := skep.has_delivery_rules(v_group, v_queue);
  select array_agg(case when t.count > 0 then i.poll::integer end), array_agg(i.id),
         array_agg(c.place), array_agg(t.acked), array_agg(t.upto),
         array_agg(t.done), array_agg(t.rest_until), count(*) filter (where t.is_buried),
         sum(case when p.wide_to > t.acked then p_bytes_max + 1 else (t.upto - t.acked) * 8192 end)
  into v_taken_poll, v_taken_id, v_taken_place, v_taken_from, v_taken_to, v_done, v_rest_until,
       v_buried, v_bytes_possible
  from (
    select distinct on (u.id) u.id, u.batch, u.poll
    from unnest(p_partition_id, p_batch) with ordinality u(id, batch, poll)
    order by u.id, u.poll
  ) i
  cross join lateral (
    select c.ctid as place, c.acked, c.unanswered, c.done
    from skep.cursor c
    where c.partition_id = i.id and c.group_id = p_group_id
      -- Written so that the planner cannot search the index of ready partitions for this one.
      and coalesce(c.available_at, 'infinity') <= v_now
    for no key update skip locked
  ) c
  cross join lateral (
    select p.head, p.pushed_at, p.wide_to, greatest(c.acked, p.tail - 1) as acked,
           case when p.tail <= c.acked + 1 then c.unanswered else 0 end as unanswered
    from skep.partition p where p.id = i.id offset 0
  ) p
  left join lateral (
    select * from skep.plan_partition(
      v_group, v_queue, i.id, p.acked, c.done, p.unanswered, p.head, p.pushed_at, i.batch, v_now)
    where v_has_rules or c.done is not null
    limit 1  -- as in push_doubtful
  ) r on true
  cross join lateral (
    select coalesce(r.acked, p.acked) as acked, r.done, r.rest_until, r.is_buried,
           coalesce(r.count, least(p.head - p.acked, i.batch)) as count,
           coalesce(r.upto, p.acked + greatest(least(p.head - p.acked, i.batch), 0)) as upto
    offset 0
  ) t;
  if v_bytes_possible > p_bytes_max then
    for i in 1 .. cardinality(v_taken_id) loop
      continue when v_taken_poll[i] is null;
      v_fit := skep.fit_claims(
        array[v_taken_id[i]], array[v_taken_from[i]], array[v_taken_to[i]],
        coalesce(v_group.conflation, false), v_bytes_left, v_bytes_left = p_bytes_max);
      v_bytes_left := case when v_fit.upto < v_taken_to[i] then 0 else v_bytes_left - v_fit.bytes end;
      if v_fit.upto = v_taken_from[i] then
        poll := v_taken_poll[i];
        return next;
        v_taken_poll[i] := null;
        v_taken_to[i] := v_taken_from[i];
      elsif v_fit.upto < v_taken_to[i] then
        v_taken_to[i] := case when v_done[i] is null then v_fit.upto else (
          select d.acked from skep.pass_done(v_fit.upto, v_done[i]) d) end;
      end if;
    end loop;
  end if;
  if v_taken_id is not null then
    return query select * from skep.take_partitions(
      v_group, v_queue, v_now, v_taken_poll, v_taken_id, v_taken_place, v_taken_from, v_taken_to,
      v_done, v_rest_until, p_lease_id, p_auto_ack, p_lease_s, p_counted);
  end if;
  if coalesce(cardinality(v_taken_id), 0) < cardinality(p_partition_id) then
    for poll, partition_id in
      select i.ord, i.id from unnest(p_partition_id) with ordinality i(id, ord)
      left join lateral (
        select true as is_there from skep.partition p
        where p.id = i.id and p.queue_id = v_group.queue_id offset 0
      ) p on true
      where p.is_there is null
    loop
      return next;
    end loop;
  end if;
  if v_buried > 0 then
    poll := null; partition_id := null; delivery := v_buried;
    return next;
  end if;
end $$;

create function skep.pop_partitions(
  p_group_id integer, p_lease_id uuid[], p_partition_id bigint[], p_batch integer[],
  p_auto_ack boolean[], p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean)
language sql as $$
  select m.poll, m.partition_id, m.partition_name, m.taken_from, m.taken_to, m.delivery, m.first,
         m.created_at, m.keys, m.body, m.passed_over, m.is_individual
  from skep.pop_partitions(
    p_group_id, p_lease_id, p_partition_id, p_batch, p_auto_ack, p_lease_s, false) m;
$$;
