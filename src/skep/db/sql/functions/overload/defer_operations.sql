-- defer_operations: accept operations that cannot run now.
-- Takes   per operation, in parallel arrays; p_request: operations of one request are accepted
--         together or not at all. p_queue_id, p_version: the queues pushed to and the versions of
--         their rules. p_depth_max, p_bytes_max: limits for all waiting operations;
--         p_partition_max: for one partition.
-- Returns per operation: queue_position in its partition; waiting and pace_s: how many operations
--         wait now, and seconds per operation. Outcomes: accepted; full; partition_full; gone (no
--         such partition); again (another partition of its request is gone).
-- Raises  SK409 if a queue was reconfigured.
-- Locks   as lock_partitions; then totals.
-- Why     Positions are assigned under the lock that pushes and processors take, so a later push
--         finds that operations wait. Repeating a call with the same ids changes nothing: the
--         broker may not know whether the first one arrived. Verdicts are window aggregates,
--         because joining two lists would be quadratic (see push_segments); near a limit they may
--         refuse a request because of another refused one.
create function skep.defer_operations(
  p_id uuid[], p_request integer[], p_type text[], p_partition_id bigint[], p_priority integer[],
  p_item_count integer[], p_items text[], p_payload bytea[], p_queue_id integer[],
  p_version integer[], p_depth_max bigint, p_partition_max integer, p_bytes_max bigint)
returns table (
  id uuid, outcome text, queue_position integer, waiting bigint, pace_s double precision,
  queue text, partition text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_waiting bigint;
  v_bytes bigint;
  v_pace_s constant double precision := skep.operation_pace();
begin
  perform skep.check_rules(p_queue_id, p_version);
  perform skep.lock_partitions(p_partition_id);
  v_now := skep.now();
  select coalesce(sum(t.operations), 0), coalesce(sum(t.bytes), 0) into v_waiting, v_bytes
  from skep.operation_total t where t.status = 'waiting';

  return query
  with given as materialized (
    select u.*, p.queue_id, p.name as partition, q.name as queue, k.id is not null as is_known,
           case u.type when 'push' then p.deferred_pushes else p.deferred_acks end as ahead
    from unnest(p_id, p_request, p_type, p_partition_id, p_priority, p_item_count, p_items,
                p_payload) with ordinality
           u(id, request, type, partition_id, priority, item_count, items, payload, item)
    left join lateral (
      select p.queue_id, p.name, p.deferred_pushes, p.deferred_acks
      from skep.partition p where p.id = u.partition_id offset 0
    ) p on true
    left join lateral (
      select q.name from skep.queue q where q.id = p.queue_id offset 0
    ) q on true
    left join lateral (
      select o.id from skep.operation o where o.id = u.id offset 0
    ) k on true
  ),
  ranked as (
    select g.*,
           row_number() over (partition by g.partition_id, g.type order by g.item) as place,
           row_number() over (order by g.item) as rank,
           sum(octet_length(g.payload)) over (order by g.item) as bytes_to
    from given g
  ),
  judged as materialized (
    select r.*,
           case when bool_and(r.is_known) over w then 'accepted'
                when bool_or(r.queue is null) over w
                  then case when r.queue is null then 'gone' else 'again' end
                when bool_or(r.ahead + r.place > p_partition_max) over w then 'partition_full'
                when max(v_waiting + r.rank) over w > p_depth_max
                  or max(v_bytes + r.bytes_to) over w > p_bytes_max then 'full'
                else 'accepted' end as verdict
    from ranked r
    window w as (partition by r.request)
  ),
  accepted as materialized (
    select j.*,
           j.ahead + row_number() over (partition by j.partition_id, j.type order by j.item)
             as position
    from judged j where j.verdict = 'accepted' and not j.is_known
  ),
  stored as (
    insert into skep.operation (
      id, type, queue_id, partition_id, queue, partition, priority, is_next, available_at,
      item_count, items, bytes, payload, created_at)
    select a.id, a.type, a.queue_id, a.partition_id, a.queue, a.partition, a.priority,
           a.position = 1, v_now, a.item_count, a.items::json, octet_length(a.payload), a.payload,
           v_now
    from accepted a order by a.item
  ),
  counted as (
    update skep.partition p
    set deferred_pushes = p.deferred_pushes + n.pushes, deferred_acks = p.deferred_acks + n.acks
    from (
      select a.partition_id, count(*) filter (where a.type = 'push') as pushes,
             count(*) filter (where a.type <> 'push') as acks
      from accepted a group by a.partition_id
    ) n
    where p.id = any(array[n.partition_id])
  )
  select j.id, j.verdict,
         case when j.verdict = 'accepted' then
           case when j.is_known then j.ahead
                else (j.ahead + row_number() over (
                  partition by j.partition_id, j.type, j.verdict = 'accepted' and not j.is_known
                  order by j.item))::integer end
         end,
         v_waiting + count(*) filter (where j.verdict = 'accepted' and not j.is_known) over (),
         v_pace_s, j.queue, j.partition
  from judged j order by j.item;

  perform skep.count_operations(
    array_agg(o.partition_id), array_agg(o.type), array_agg('waiting'::text),
    array_agg(1::bigint), array_agg(o.bytes::bigint))
  from unnest(p_id) u(id)
  cross join lateral (
    select o.partition_id, o.type, o.bytes, o.xmin as writer
    from skep.operation o where o.id = u.id offset 0
  ) o
  where o.writer = pg_current_xact_id()::xid;
end $$;
