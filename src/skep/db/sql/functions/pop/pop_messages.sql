-- pop_messages: serve polls of one consumer group from the partitions that waited longest.
-- Takes   per poll, in parallel arrays: p_lease_id (new), p_batch (messages) and p_partitions, both
--         1 or more, p_auto_ack, p_lease_s (0: the queue's lease time). p_counted: return counts.
--         p_bytes_max: of the bodies returned, null for any; at least one segment is.
-- Returns as take_partitions. No row for a poll that got nothing, or if the group or its queue is
--         paused. A row with only poll: the answer is full, and the poll should ask again. A row
--         without a poll: so many messages (delivery) became dead letters.
-- Raises  SK404 if the group does not exist.
-- Locks   ready skep.cursor rows, longest waiting first, skipping locked ones; then as
--         take_partitions. It never waits.
-- Model   Delivery!Claim, WakeUp!Claim
-- Why     available_at alone decides, so the cost depends neither on the number of partitions nor
--         on the backlog; head - acked tells how much a partition holds without reading a message.
--         Partitions that turn out empty or held back are set to rest and replaced in another
--         round. Only partitions with rules or done messages are planned one by one. The variant
--         without counts is for brokers of the release before, which run on while instances are
--         restarted one after the other.
create function skep.pop_messages(
  p_group_id integer, p_lease_id uuid[], p_batch integer[], p_partitions integer[],
  p_auto_ack boolean[], p_lease_s integer[], p_counted boolean, p_bytes_max bigint default null)
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean, counts bigint[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_polls constant integer := cardinality(p_lease_id);
  v_poll integer := 1;                    -- the poll being filled
  v_batch_left integer := p_batch[1];
  v_partitions_left integer := p_partitions[1];
  v_limit integer := 0;                   -- partitions to look at in this round
  v_seen integer;
  v_looked_at integer := 0;               -- partitions in all rounds
  v_partition record;
  v_take integer;
  v_group skep.consumer_group;
  v_queue skep.queue;
  v_has_rules boolean;
  v_plan record;
  v_buried integer := 0;
  v_taken_poll integer[];                 -- null for a partition with nothing to take
  v_taken_id bigint[];
  v_taken_place tid[];
  v_taken_from bigint[];
  v_taken_to bigint[];
  v_done int8multirange[];
  v_rest_until timestamptz[];
  v_thin_bytes constant bigint := 8192;   -- of a message where no segment is wide, at most
  v_bytes_left bigint := p_bytes_max;
  v_bytes_possible bigint := 0;           -- in what was taken behind v_measured
  v_measured integer := 0;
  v_fit record;
  v_is_full boolean := false;
begin
  v_group := skep.assert_group(p_group_id);
  select q.* into strict v_queue from skep.queue q where q.id = v_group.queue_id;
  if v_group.is_paused or v_queue.is_paused then
    return;
  end if;
  v_has_rules := skep.has_delivery_rules(v_group, v_queue);
  for i in 1 .. v_polls loop
    v_limit := v_limit + p_partitions[i];
  end loop;

  loop
    v_seen := 0;
    v_measured := 0;
    v_bytes_left := v_bytes_left - v_bytes_possible;
    v_bytes_possible := 0;
    v_taken_poll := '{}';
    v_taken_id := '{}';
    v_taken_place := '{}';
    v_taken_from := '{}';
    v_taken_to := '{}';
    v_done := null;
    v_rest_until := null;
    for v_partition in
      select c.partition_id as id, c.ctid as place, c.done, p.head, p.pushed_at, p.wide_to,
             greatest(c.acked, p.tail - 1) as acked,
             case when p.tail <= c.acked + 1 then c.unanswered else 0 end as unanswered
      from skep.cursor c
      cross join lateral (
        select p.head, p.tail, p.pushed_at, p.wide_to from skep.partition p
        where p.id = c.partition_id offset 0
      ) p
      where c.group_id = p_group_id and c.available_at <= v_now
      order by c.available_at
      limit v_limit
      for no key update of c skip locked
    loop
      exit when v_poll > v_polls;
      v_seen := v_seen + 1;
      v_taken_id := v_taken_id || v_partition.id;
      v_taken_place := v_taken_place || v_partition.place;
      if v_has_rules or v_partition.done is not null then
        v_plan := skep.plan_partition(
          v_group, v_queue, v_partition.id, v_partition.acked, v_partition.done,
          v_partition.unanswered, v_partition.head, v_partition.pushed_at, v_batch_left, v_now);
        v_take := v_plan.count;
        v_buried := v_buried + v_plan.is_buried::integer;
        v_taken_from := v_taken_from || v_plan.acked;
        v_taken_to := v_taken_to || v_plan.upto;
        -- An array starts at its first assigned subscript, which must be 1.
        v_done[1] := v_done[1];
        v_rest_until[1] := v_rest_until[1];
        v_done[v_seen] := v_plan.done;
        v_rest_until[v_seen] := v_plan.rest_until;
      else
        v_take := least(v_partition.head - v_partition.acked, v_batch_left);
        v_taken_from := v_taken_from || v_partition.acked;
        v_taken_to := v_taken_to || v_partition.acked + greatest(v_take, 0);
      end if;
      if v_take > 0 and p_bytes_max is not null then
        v_bytes_possible := v_bytes_possible + case
          when v_partition.wide_to > v_taken_from[v_seen] then p_bytes_max + 1
          else (v_taken_to[v_seen] - v_taken_from[v_seen]) * v_thin_bytes end;
        if v_bytes_possible > v_bytes_left then
          v_fit := skep.fit_claims(
            v_taken_id[v_measured + 1:], v_taken_from[v_measured + 1:],
            v_taken_to[v_measured + 1:], coalesce(v_group.conflation, false), v_bytes_left,
            v_bytes_left = p_bytes_max);
          v_bytes_left := v_bytes_left - v_fit.bytes;
          v_bytes_possible := 0;
          v_measured := v_seen;
          v_is_full := v_fit.upto < v_taken_to[v_seen];
          if v_is_full then
            v_take := v_fit.upto - v_taken_from[v_seen];
            v_taken_to[v_seen] := case when v_take = 0 or v_done[v_seen] is null then v_fit.upto
              else (select d.acked from skep.pass_done(v_fit.upto, v_done[v_seen]) d) end;
          end if;
          if v_is_full and v_take = 0 and v_rest_until is null then
            -- It keeps its place among those that wait. Others go behind: they were planned.
            v_seen := v_seen - 1;
            v_taken_id := v_taken_id[:v_seen];
            v_taken_place := v_taken_place[:v_seen];
            v_taken_from := v_taken_from[:v_seen];
            v_taken_to := v_taken_to[:v_seen];
            exit;
          end if;
        end if;
      end if;
      v_taken_poll := v_taken_poll || case when v_take > 0 then v_poll end;
      exit when v_is_full;
      continue when v_take <= 0;
      v_batch_left := v_batch_left - v_take;
      v_partitions_left := v_partitions_left - 1;
      if v_batch_left = 0 or v_partitions_left = 0 then
        v_poll := v_poll + 1;
        v_batch_left := p_batch[v_poll];
        v_partitions_left := p_partitions[v_poll];
      end if;
    end loop;

    if v_seen > 0 then
      return query select * from skep.take_partitions(
        v_group, v_queue, v_now, v_taken_poll, v_taken_id, v_taken_place, v_taken_from,
        v_taken_to, v_done, v_rest_until, p_lease_id, p_auto_ack, p_lease_s, p_counted);
    end if;
    -- Fewer than v_limit means that nothing else is ready. The bound keeps the call short when a
    -- hundred thousand partitions must be set to rest; the next poll goes on from there.
    v_looked_at := v_looked_at + v_seen;
    exit when v_is_full or v_poll > v_polls or v_seen < v_limit or v_looked_at >= 10000;
    v_limit := least(v_limit * 4, 1000);
  end loop;
  if v_is_full then
    for i in v_poll + (v_take > 0 or v_batch_left < p_batch[v_poll])::integer .. v_polls loop
      poll := i;
      return next;
    end loop;
    poll := null;
  end if;
  if v_buried > 0 then
    delivery := v_buried;
    return next;
  end if;
end $$;

create function skep.pop_messages(
  p_group_id integer, p_lease_id uuid[], p_batch integer[], p_partitions integer[],
  p_auto_ack boolean[], p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean)
language sql as $$
  select m.poll, m.partition_id, m.partition_name, m.taken_from, m.taken_to, m.delivery, m.first,
         m.created_at, m.keys, m.body, m.passed_over, m.is_individual
  from skep.pop_messages(
    p_group_id, p_lease_id, p_batch, p_partitions, p_auto_ack, p_lease_s, false) m;
$$;
