-- show_operation: one deferred operation, and how long it may still wait.
-- Returns queue_position in its partition, waiting (operations in all) and pace_s if it waits.
-- Why     A position is counted in the partition's index; defer_operations bounds it.
create function skep.show_operation(p_id uuid)
returns table (
  id uuid, number bigint, type text, queue text, partition text, priority integer, status text,
  retries integer, item_count integer, bytes integer, error text, created_at timestamptz,
  started_at timestamptz, finished_at timestamptz, available_at timestamptz,
  partition_id bigint, items json, answer json, queue_position bigint, waiting bigint,
  pace_s double precision)
language sql stable as $$
  select o.id, o.number, o.type, o.queue, o.partition, o.priority, o.status, o.retries,
         o.item_count, o.bytes, o.error, o.created_at, o.started_at, o.finished_at, o.available_at,
         o.partition_id, o.items, o.answer, a.position, t.waiting, a.pace_s
  from skep.operation o
  left join lateral (
    select count(*) as position, skep.operation_pace() as pace_s
    from skep.operation b
    where b.partition_id = o.partition_id and b.type = o.type and b.number <= o.number
      and b.status in ('waiting', 'processing')
  ) a on o.status in ('waiting', 'processing')
  cross join lateral (
    select coalesce(sum(t.operations), 0)::bigint as waiting
    from skep.operation_total t where t.status = 'waiting'
  ) t
  where o.id = p_id;
$$;
