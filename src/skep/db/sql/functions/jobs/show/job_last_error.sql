-- job_last_error: the error of a job that did not complete, or of its last attempt that failed.
-- Takes   p_job_id, p_state, p_error (of skep.job), p_attempt: its last attempt.
-- Returns null if there is none, or the job completed.
-- Why     What is tried again shows why. A job that reschedules itself may have very many attempts:
--         the last hundred are looked at.
create function skep.job_last_error(
  p_job_id uuid, p_state text, p_error text, p_attempt integer)
returns text
language sql stable as $$
  select case when p_state in ('completed', 'continued') then null
              else coalesce(p_error, (
                select a.error from skep.job_attempt a
                where a.job_id = p_job_id and a.attempt > p_attempt - 100
                  and a.outcome in ('failed', 'lost')
                order by a.attempt desc limit 1)) end;
$$;
