-- ack_messages: record what consumers did with the messages they hold.
-- Takes   per ack, in parallel arrays: p_partition_id, p_group (name), p_lease_id (null: unfenced,
--         as the wire allows), p_offset (null: as name_messages finds it by p_key), p_key,
--         p_status (completed, failed, retry, dlq; or expired for a message the broker skipped),
--         p_error. p_is_deferred: the acks are deferred operations that run now.
-- Returns one row per ack: item (1-based), outcome, queue_id, queue_name, partition_name,
--         lease_released, has_more (the partition is ready or backing off). Outcomes: acked; noop
--         (already done); redelivered (completed, but above a message that failed in this call, or
--         not told apart from it); retried; dead_lettered; dropped (given up in a queue without
--         dead letters); expired; lease_lost; beyond_lease (the lease does not cover the message);
--         not_found; already_done (a nack of a finished message); deferred (not executed: it must
--         wait behind deferred acks of its partition). No row: no such partition or group.
-- Locks   skep.cursor rows for no key update, in (partition_id, group_id) order, waiting; then
--         skep.partition rows for share, skipping locked ones.
-- Model   Delivery!Ack
-- Why     A cursor only moves forward. A completed ack completes everything before it, up to the
--         lowest message that failed in this call: a failed message is never passed. (With
--         individual acks each speaks only for its own message; see ack_partition.) A stale lease
--         is an outcome, not an error: the other acks belong to other clients. Nearly all acks
--         complete a leased range, one per partition; complete_lease does the only one of a call,
--         complete_leases several together, the rest go partition by partition. The look for
--         deferred operations needs no lock (see refuse_deferred). The lock pass is that of
--         lock_cursors, written out because the call costs 2 to 3 % here. For the laterals see
--         push_segments.
create function skep.ack_messages(
  p_partition_id bigint[], p_group text[], p_lease_id uuid[], p_offset bigint[], p_key bytea[],
  p_status text[], p_error text[], p_is_deferred boolean default false)
returns table (
  item integer, outcome text, queue_id integer, queue_name text, partition_name text,
  lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_known integer;                   -- acks whose partition and group exist
  v_group_id integer[];              -- these by item, null where there is no such group
  v_plain_group_id integer[];        -- the same, null as well where acks are individual
  v_queue_id integer[];
  v_queue_name text[];
  v_partition_name text[];
  v_deferred integer[];              -- acks that must wait
  v_done integer[];
  v_released boolean[];
  v_has_more boolean[];
  v_key bytea[];                     -- p_key if an ack names no offset
  v_partition record;
begin
  if cardinality(p_partition_id) = 1 and p_status[1] = 'completed' then
    return query
    select 1, 'acked', d.queue_id, d.queue_name, d.partition_name, d.lease_released, d.has_more
    from skep.complete_lease(
      p_partition_id[1], p_group[1], p_lease_id[1], p_offset[1], p_is_deferred) d;
    if found then
      return;
    end if;
  end if;

  select count(i.group_id), array_agg(i.group_id),
         array_agg(case when i.ack_mode = 'cumulative' then i.group_id end),
         array_agg(i.queue_id), array_agg(i.queue_name), array_agg(i.partition_name),
         array_agg(i.item::integer) filter (where i.is_deferred)
  into v_known, v_group_id, v_plain_group_id, v_queue_id, v_queue_name, v_partition_name,
       v_deferred
  from (
    select u.item, d.is_deferred, case when not d.is_deferred then g.id end as group_id,
           p.queue_id, q.ack_mode, q.name as queue_name, p.name as partition_name
    from unnest(p_partition_id, p_group) with ordinality u(partition_id, group_name, item)
    left join lateral (
      select p.name, p.queue_id, p.deferred_acks
      from skep.partition p where p.id = u.partition_id offset 0
    ) p on true
    cross join lateral (
      select coalesce(p.deferred_acks > 0, false) and not p_is_deferred as is_deferred
    ) d
    left join lateral (
      select q.name, q.ack_mode from skep.queue q where q.id = p.queue_id offset 0
    ) q on true
    left join lateral (
      select g.id from skep.consumer_group g
      where g.queue_id = p.queue_id and g.name = u.group_name offset 0
    ) g on true
    order by u.item
  ) i;
  if v_deferred is not null then
    return query
    select d.item, 'deferred', v_queue_id[d.item], v_queue_name[d.item], v_partition_name[d.item],
           false, false
    from unnest(v_deferred) d(item);
  end if;
  if v_known = 0 then
    return;
  end if;

  perform 1
  from (
    select distinct u.* from unnest(p_partition_id, v_group_id) u(partition_id, group_id)
    order by u.partition_id, u.group_id
  ) i
  cross join lateral (
    select 1 from skep.cursor c
    where c.partition_id = i.partition_id and c.group_id = i.group_id for no key update
  ) c;
  v_now := skep.now();

  select array_agg(d.item), array_agg(d.lease_released), array_agg(d.has_more)
  into v_done, v_released, v_has_more
  from skep.complete_leases(
    p_partition_id, v_plain_group_id, p_lease_id, p_offset, p_status, v_now) d;
  if v_done is not null then
    return query
    select d.item, 'acked', v_queue_id[d.item], v_queue_name[d.item], v_partition_name[d.item],
           d.lease_released, d.has_more
    from unnest(v_done, v_released, v_has_more) d(item, lease_released, has_more);
    if cardinality(v_done) = v_known then
      return;
    end if;
  end if;

  v_key := case when array_position(p_offset, null) is not null then p_key end;
  for v_partition in
    select i.partition_id, i.group_id, array_agg(i.item::integer) as items
    from unnest(p_partition_id, v_group_id) with ordinality i(partition_id, group_id, item)
    where i.group_id is not null
      and not exists (select from unnest(v_done) d(item) where d.item = i.item)
    group by i.partition_id, i.group_id
  loop
    return query
    select a.item, a.outcome, v_queue_id[a.item], v_queue_name[a.item], v_partition_name[a.item],
           a.lease_released, a.has_more
    from skep.ack_partition(
      v_partition.partition_id, v_partition.group_id, v_partition.items, p_lease_id, p_offset,
      v_key, p_status, p_error, v_now) a;
  end loop;
end $$;
