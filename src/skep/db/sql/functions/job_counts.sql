/*
job_counts: how many jobs of each type are open, and how long the oldest ready one has waited.

Takes   nothing.
Returns one row per type that has open jobs: type, ready, scheduled, blocked, running,
        oldest_ready_s (null if none is ready).
Locks   none.
Why     It reads the open jobs, never the finished ones.
*/
create function skep.job_counts()
returns table (
  type text, ready bigint, scheduled bigint, blocked bigint, running bigint,
  oldest_ready_s double precision)
language sql stable as $$
  select t.name,
         count(*) filter (where s.state = 'ready'), count(*) filter (where s.state = 'scheduled'),
         count(*) filter (where s.state = 'blocked'), count(*) filter (where s.state = 'running'),
         extract(epoch from n.now - min(s.due_at) filter (where s.state = 'ready'))
           ::double precision
  from (select skep.now() as now) n
  cross join lateral (
    select o.type_id, o.due_at,
           skep.job_state('open', o.open_blockers, o.worker_id, o.due_at, n.now) as state
    from skep.open_job o
  ) s
  join skep.job_type t on t.id = s.type_id
  group by t.name, n.now order by t.name;
$$;
