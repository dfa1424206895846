-- timer_queues: find the queues of timers by name.
-- Takes   p_schedules: whether timers are to be scheduled there; such queues are created.
-- Returns the ids of those that exist, by name.
-- Locks   as ensure_queue.
-- Why     Queues are created in the order of their names, so that calls never wait in a circle. A
--         timer to cancel creates nothing.
create function skep.timer_queues(p_queue text[], p_schedules boolean[])
returns table (queue text, queue_id integer)
language plpgsql as $$
#variable_conflict use_column
begin
  perform skep.ensure_queue(n.name)
  from (
    select distinct u.name from unnest(p_queue, p_schedules) u(name, schedules)
    where u.schedules and not exists (select from skep.queue q where q.name = u.name)
    order by u.name
  ) n;
  return query
  select q.name, q.id
  from (select distinct name from unnest(p_queue) u(name)) u
  cross join lateral (select q.id, q.name from skep.queue q where q.name = u.name offset 0) q;
end $$;
