-- job_disown: return jobs that a worker claimed without knowing it.
-- Takes   p_worker_id; p_job_id, p_attempt: parallel arrays of the claims it knows.
-- Returns the names of the types of returned jobs.
-- Locks   the worker's other skep.open_job rows for update, in ascending id.
-- Why     A claim may have succeeded although its answer was lost. The worker keeps renewing its
--         lease, so these jobs would never run. The attempt is recorded as released and does not
--         count as a failure. The worker must not claim at the same time.
create function skep.job_disown(p_worker_id uuid, p_job_id uuid[], p_attempt integer[])
returns table (type text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with unknown as (
    select o.job_id, o.type_id, o.attempt, o.claimed_at
    from skep.open_job o
    where o.worker_id = p_worker_id
      and not exists (
        select from unnest(p_job_id, p_attempt) u(id, attempt)
        where u.id = o.job_id and u.attempt = o.attempt)
    order by o.job_id for update
  ), noted as (
    insert into skep.job_attempt (job_id, attempt, outcome, worker_id, started_at, ended_at, error)
    select u.job_id, u.attempt, 'released', p_worker_id, u.claimed_at, v_now,
           'the worker did not hear of its claim'
    from unknown u
  ), returned as (
    update skep.open_job o set worker_id = null, claimed_at = null
    from unknown u where o.job_id = u.job_id
    returning o.type_id
  )
  select t.name from skep.job_type t where t.id in (select r.type_id from returned r);
end $$;
