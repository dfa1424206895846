-- job_failed_blockers: count the chains that a job waits for in vain.
-- Returns how many of its blockers failed or were cancelled.
-- Why     What such a job waits for does not come by itself: lists must show it.
create function skep.job_failed_blockers(p_job_id uuid) returns integer
language sql stable as $$
  select count(*)::integer
  from skep.blocker b
  cross join lateral (
    select c.state from skep.chain c where c.id = b.chain_id offset 0
  ) c
  where b.job_id = p_job_id and c.state in ('failed', 'cancelled');
$$;
