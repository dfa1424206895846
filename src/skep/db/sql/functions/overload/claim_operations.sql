-- claim_operations: claim the oldest deferred operations of some partitions, with those behind.
-- Takes   p_priority: priorities in claiming order. p_partitions: the maximum of partitions.
--         p_per_partition: operations per partition. p_bytes: payload to return, but at least one
--         operation. p_timeout_s: after this time another process may claim them.
-- Returns by priority, operations of a partition in order; is_gone: its queue was deleted.
-- Locks   the oldest skep.operation row of each partition for update, skipping locked ones.
-- Why     Only the oldest operation of a partition is marked as claimed, which protects those
--         behind it. One whose claim expired counts a failed attempt. The cost follows what is
--         taken: an index holds the oldest operation of each partition, ready ones first.
create function skep.claim_operations(
  p_claim_id uuid, p_priority integer[], p_partitions integer, p_per_partition integer,
  p_bytes bigint, p_timeout_s double precision)
returns table (
  id uuid, type text, queue text, partition text, partition_id bigint, retries integer,
  is_gone boolean, payload bytea)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_ids uuid[];
begin
  select array_agg(h.id) into v_ids
  from (
    select o.id
    from unnest(p_priority) i(priority)
    cross join lateral (
      select o.id from skep.operation o
      where o.is_next and o.priority = i.priority and o.available_at <= v_now
      order by o.available_at, o.number limit p_partitions
      for update skip locked
    ) o
    limit p_partitions
  ) h;
  if v_ids is null then
    return;
  end if;
  -- What does not fit is not claimed, so that another process can take it.
  select array_agg(h.id order by h.place) into v_ids
  from (
    select u.id, u.place, sum(o.bytes) over (order by u.place) - o.bytes as bytes_before
    from unnest(v_ids) with ordinality u(id, place)
    cross join lateral (select o.bytes from skep.operation o where o.id = u.id offset 0) o
  ) h
  where h.bytes_before < p_bytes or h.place = 1;

  update skep.operation o
  set status = 'processing', claim_id = p_claim_id, started_at = v_now,
      available_at = v_now + make_interval(secs => p_timeout_s),
      retries = o.retries + (o.status = 'processing')::integer
  from unnest(v_ids) i(id)
  where o.id = any(array[i.id]);

  return query
  select f.id, f.type, f.queue, f.partition, f.partition_id, f.retries,
         not exists (select from skep.queue q where q.id = f.queue_id), f.payload
  from (
    select b.*, h.place, sum(b.bytes) over (order by h.place, b.number) - b.bytes as bytes_before
    from unnest(v_ids) with ordinality h(id, place)
    cross join lateral (
      select o.partition_id, o.type, o.number from skep.operation o where o.id = h.id offset 0
    ) o
    cross join lateral (
      select b.* from skep.operation b
      where b.partition_id = o.partition_id and b.type = o.type and b.number >= o.number
        and b.status in ('waiting', 'processing')
      order by b.number limit p_per_partition
    ) b
  ) f
  where f.is_next or f.bytes_before < p_bytes
  order by f.place, f.number;
end $$;
