-- take_over_redrives: take over redrives whose owner has stopped.
-- Takes   p_idle_s: how long a job may be without progress.
-- Returns their ids.
-- Locks   skep.redrive rows for no key update, skipping locked ones, which are being worked on.
-- Why     The process that accepted a job may be gone. A batch takes a moment, so a job without
--         progress has no worker. A former owner that comes back learns that it lost the job.
create function skep.take_over_redrives(p_owner uuid, p_idle_s integer)
returns table (id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  update skep.redrive r set owner = p_owner, progressed_at = v_now
  where r.id in (
    select s.id from skep.redrive s
    where s.state = 'running' and s.progressed_at < v_now - make_interval(secs => p_idle_s)
    order by s.progressed_at limit 100
    for no key update skip locked
  )
  returning r.id;
end $$;
