-- job_hold: lock a running job for the transaction that will settle it.
-- Takes   p_chain_id, p_job_id; p_worker_id, p_attempt: the token.
-- Returns whether the job is still that worker's; if so it stays so until the transaction ends.
-- Locks   as chain_lock, waiting, until the transaction ends.
-- Why     A session that cancels the chain waits for this transaction, so what the handler writes
--         is kept with the completion or not at all. The token is checked under the lock.
create function skep.job_hold(p_chain_id uuid, p_job_id uuid, p_worker_id uuid, p_attempt integer)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  perform skep.chain_lock(array[p_chain_id], true);
  -- Not "worker_id =", as in job_complete.
  return exists (
    select from skep.open_job o
    where o.job_id = p_job_id and o.worker_id is not distinct from p_worker_id
      and o.attempt = p_attempt);
end $$;
