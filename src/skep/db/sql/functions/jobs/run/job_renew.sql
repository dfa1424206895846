-- job_renew: renew a worker's lease and report the claims it lost.
-- Takes   p_worker_id, p_lease_s; p_job_id, p_attempt: parallel arrays of the claims it works on.
-- Returns per lost claim: job_id, reason: worker_lost (the lease expired and was reaped; every
--         claim is lost), taken (returned; may run elsewhere), cancelled, completed, continued or
--         failed (ended by another session), deleted.
-- Locks   the skep.job_worker row for no key update.
-- Why     An expired lease that was not reaped yet may be renewed: nothing was lost. The reaper
--         deletes the row, after which there is nothing to renew.
create function skep.job_renew(
  p_worker_id uuid, p_lease_s double precision, p_job_id uuid[], p_attempt integer[])
returns table (job_id uuid, reason text)
language plpgsql as $$
#variable_conflict use_column
begin
  update skep.job_worker w
  set expires_at = greatest(w.expires_at, skep.now() + make_interval(secs => p_lease_s))
  where w.id = p_worker_id and w.expires_at > '-infinity';
  if not found then
    return query
    select null::uuid, 'worker_lost' union all
    select u.id, 'worker_lost' from unnest(p_job_id) u(id);
    return;
  end if;
  return query
  select u.id, case when j.id is null then 'deleted'
                    when j.state = 'open' then 'taken' else j.state end
  from unnest(p_job_id, p_attempt) u(id, attempt)
  left join skep.job j on j.id = u.id
  where not exists (
    select from skep.open_job o
    where o.job_id = u.id and o.attempt = u.attempt and o.worker_id = p_worker_id);
end $$;
