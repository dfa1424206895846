-- job_needs: job types with work that nothing does, and how many workers there are.
-- Takes   p_late_s: how long a ready job may wait.
-- Returns types that are paused, or whose first ready job waits longer; oldest_s: for how long, null
--         if no job is ready; workers: live ones, the same in all rows. One row at least: without a
--         type if there is none.
-- Why     One look at the front of each type and priority, however many jobs wait.
create function skep.job_needs(p_late_s double precision)
returns table (type text, is_paused boolean, oldest_s double precision, workers bigint)
language sql stable as $$
  select n.name, n.is_paused, n.oldest_s, w.workers
  from (
    select count(*) as workers from skep.job_worker w where w.expires_at > skep.now()
  ) w
  left join (
    select t.name, t.is_paused, extract(epoch from skep.now() - f.due_at)::double precision as oldest_s
    from skep.job_type t
    cross join lateral (
      select min(f.due_at) filter (where f.due_at <= skep.now()) as due_at
      from skep.job_fronts(array[t.id], '-infinity') f
    ) f
    where t.is_paused or f.due_at < skep.now() - make_interval(secs => p_late_s)
  ) n on true
  order by n.oldest_s desc nulls last, n.name;
$$;
