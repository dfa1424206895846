-- job_awaits: whether a job still waits for a chain.
-- Takes   p_state: of the chain; p_on_failure: what the job does when it does not complete.
-- Returns false if it completed, or ended otherwise and that is ignored.
-- Why     A failed chain can be retried, so a job waits on for it unless it says otherwise.
create function skep.job_awaits(p_state text, p_on_failure text) returns boolean
language sql immutable as $$
  select p_state = 'open' or p_state <> 'completed' and p_on_failure <> 'ignore';
$$;
