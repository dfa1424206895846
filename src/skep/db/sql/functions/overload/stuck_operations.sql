-- stuck_operations: operations that could have been claimed long ago.
-- Takes   p_priority: the priorities there are. p_age_s: for how many seconds at least. p_limit: the
--         maximum of rows.
-- Returns the oldest operation of each such partition; due_at: since when it could be claimed.
-- Why     Nothing carries operations out, or a process that claimed one hangs and no other takes
--         over. Everything behind it waits as well, so one row per partition says it all. The index
--         of what is ready has them at its front, for each priority.
create function skep.stuck_operations(
  p_priority integer[], p_age_s double precision, p_limit integer)
returns table (
  id uuid, type text, queue text, partition text, status text, retries integer,
  due_at timestamptz)
language sql stable as $$
  select o.id, o.type, o.queue, o.partition, o.status, o.retries, o.available_at
  from unnest(p_priority) i(priority)
  cross join lateral (
    select o.* from skep.operation o
    where o.is_next and o.priority = i.priority
      and o.available_at < skep.now() - make_interval(secs => p_age_s)
    order by o.available_at, o.number limit p_limit
  ) o
  limit p_limit;
$$;
