-- job_fronts: the first waiting job of each type and priority.
-- Takes   p_type_id: types. p_after: only jobs due later count.
-- Returns per (type, priority) that has one: type_id, priority, due_at.
-- Why     The index is ordered by type, priority and due time: the next priority is one look-up
--         away, however many jobs lie between.
create function skep.job_fronts(p_type_id integer[], p_after timestamptz)
returns table (type_id integer, priority smallint, due_at timestamptz)
language sql stable as $$
  with recursive level as (
    select u.id as type_id, f.priority
    from unnest(p_type_id) u(id)
    cross join lateral (
      select o.priority from skep.open_job o
      where o.type_id = u.id and o.worker_id is null and o.open_blockers = 0
      order by o.priority limit 1
    ) f
    union all
    select l.type_id, f.priority
    from level l
    cross join lateral (
      select o.priority from skep.open_job o
      where o.type_id = l.type_id and o.priority > l.priority
        and o.worker_id is null and o.open_blockers = 0
      order by o.priority limit 1
    ) f
  )
  select l.type_id, l.priority, f.due_at
  from level l
  cross join lateral (
    select o.due_at from skep.open_job o
    where o.type_id = l.type_id and o.priority = l.priority and o.due_at > p_after
      and o.worker_id is null and o.open_blockers = 0
    order by o.due_at limit 1
  ) f;
$$;
