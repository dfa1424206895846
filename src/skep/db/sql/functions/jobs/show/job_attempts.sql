-- job_attempts: the attempts of a job, by page.
-- Takes   p_job_id; p_after: the last attempt of the previous page, 0 to begin; p_limit.
-- Returns by attempt: attempt, outcome (failed, lost, rescheduled, released, completed, continued,
--         cancelled or running), worker_id, started_at, ended_at, error.
-- Why     The attempt that ended a job is stored in the job's own row, which saves every successful
--         job a row.
create function skep.job_attempts(p_job_id uuid, p_after integer, p_limit integer)
returns table (
  attempt integer, outcome text, worker_id uuid, started_at timestamptz, ended_at timestamptz,
  error text)
language sql stable as $$
  select a.attempt, a.outcome, a.worker_id, a.started_at, a.ended_at, a.error
  from (
    select a.attempt, a.outcome, a.worker_id, a.started_at, a.ended_at, a.error
    from skep.job_attempt a where a.job_id = p_job_id and a.attempt > p_after
    union all
    select o.attempt, 'running', o.worker_id, o.claimed_at, null, null
    from skep.open_job o
    where o.job_id = p_job_id and o.worker_id is not null and o.attempt > p_after
    union all
    select j.attempts, j.state, j.worker_id, j.started_at, j.finished_at, j.error
    from skep.job j
    where j.id = p_job_id and j.state <> 'open' and j.attempts > p_after
      and not exists (
        select from skep.job_attempt a where a.job_id = j.id and a.attempt = j.attempts)
  ) a
  order by a.attempt limit p_limit;
$$;
