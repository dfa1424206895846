/*
job_disown: give back what a worker has claimed without knowing it.

Takes   p_worker_id; in parallel arrays p_job_id and p_attempt: the claims it knows of.
Returns the names of the types of jobs that were given back.
Locks   the worker's skep.open_job rows that it does not know of, ascending id.
Why     A claim whose answer was lost on the way may have happened. The worker lives on and renews
        its lease, so nobody would ever take these jobs away from it. It was not their fault: the
        attempt is on record as released and does not count as failed. The worker must not claim
        at the same time.
*/
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
