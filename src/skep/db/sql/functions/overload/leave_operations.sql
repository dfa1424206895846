-- leave_operations: end waiting operations and advance those behind them.
-- Takes   p_id: waiting or processed operations, locked like their partitions. p_status: their new
--         one. p_answer (json), p_error: per operation; null keeps the old value.
-- Locks   the next skep.operation row of each partition; then totals.
-- Why     The one place where an operation stops waiting: partition counters, totals and the next
--         operation change together. Only failed operations keep their payload.
create function skep.leave_operations(
  p_id uuid[], p_status text, p_answer text[], p_error text[]) returns void
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_partition_id bigint[];
  v_type text[];
  v_bytes bigint[];
begin
  with ended as (
    update skep.operation o
    set status = p_status, is_next = false, claim_id = null, finished_at = v_now,
        answer = i.answer::json, error = coalesce(i.error, o.error),
        payload = case when p_status = 'failed' then o.payload end
    from unnest(p_id, p_answer, p_error) i(id, answer, error)
    where o.id = any(array[i.id])
    returning o.partition_id, o.type, o.bytes
  )
  select array_agg(e.partition_id), array_agg(e.type), array_agg(e.bytes::bigint)
  into v_partition_id, v_type, v_bytes
  from ended e;
  if v_type is null then
    return;
  end if;

  update skep.partition p
  set deferred_pushes = p.deferred_pushes - n.pushes, deferred_acks = p.deferred_acks - n.acks
  from (
    select u.id, count(*) filter (where u.type = 'push') as pushes,
           count(*) filter (where u.type <> 'push') as acks
    from unnest(v_partition_id, v_type) u(id, type) group by u.id
  ) n
  where p.id = any(array[n.id]);
  -- claim_operations finds only marked operations.
  update skep.operation o
  set is_next = true, available_at = least(o.available_at, v_now)
  from (
    select distinct u.id, u.type from unnest(v_partition_id, v_type) u(id, type) order by 1, 2
  ) l
  cross join lateral (
    select n.id from skep.operation n
    where n.partition_id = l.id and n.type = l.type and n.status in ('waiting', 'processing')
    order by n.number limit 1
  ) n
  where o.id = any(array[n.id]) and not o.is_next;
  perform skep.count_operations(
    v_partition_id || v_partition_id, v_type || v_type,
    array_fill('waiting'::text, array[cardinality(v_type)])
      || array_fill(p_status, array[cardinality(v_type)]),
    array_fill(-1::bigint, array[cardinality(v_type)])
      || array_fill(1::bigint, array[cardinality(v_type)]),
    (select array_agg(-b) from unnest(v_bytes) b) || v_bytes);
end $$;
