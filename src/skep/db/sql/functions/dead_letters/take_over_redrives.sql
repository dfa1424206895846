/*
take_over_redrives: become the owner of redrives whose owner has stopped working on them.

Takes   p_owner; p_idle_s: how long one may be without progress.
Returns their ids.
Locks   skep.redrive rows for no key update, skipping locked ones: those are being worked on.
Why     The process that accepted a job may be gone. Nobody has to find that out: a batch takes a
        moment, so a job that stands still is nobody's. The former owner, should it come back, finds
        that the job is not its own any more.
*/
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
