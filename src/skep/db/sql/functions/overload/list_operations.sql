-- list_operations: deferred operations, newest first.
-- Takes   p_status, p_queue: null for any. p_before: only smaller numbers, null to begin.
-- Returns by descending number.
-- Why     Paged by number, which is unique and indexed with the status: every page costs the same.
create function skep.list_operations(
  p_status text, p_queue text, p_before bigint, p_limit integer)
returns table (
  id uuid, number bigint, type text, queue text, partition text, priority integer, status text,
  retries integer, item_count integer, bytes integer, error text, created_at timestamptz,
  started_at timestamptz, finished_at timestamptz, available_at timestamptz)
language sql stable as $$
  select o.id, o.number, o.type, o.queue, o.partition, o.priority, o.status, o.retries,
         o.item_count, o.bytes, o.error, o.created_at, o.started_at, o.finished_at, o.available_at
  from unnest(case when p_status is null
                then array['waiting', 'processing', 'completed', 'failed', 'cancelled']
                else array[p_status] end) s(status)
  cross join lateral (
    select o.* from skep.operation o
    where o.status = s.status and (p_before is null or o.number < p_before)
      and (p_queue is null or o.queue = p_queue)
    order by o.number desc limit p_limit
  ) o
  order by o.number desc limit p_limit;
$$;
