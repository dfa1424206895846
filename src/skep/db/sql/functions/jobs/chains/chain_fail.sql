-- chain_fail: close chains whose job failed for good, and their dependants.
-- Takes   p_chain_id, p_error: parallel arrays; p_now.
-- Returns the ids of dependent chains that failed too; null if none.
-- Locks   none; the caller holds everything (chain_lock).
-- Why     Each chain keeps the error of its own job; a dependent chain says which blocker failed.
--         Whether a job that failed is tried again is decided before: by the worker
--         (skep/jobs/worker/retry.py), or by job_reap for attempts lost with their worker.
create function skep.chain_fail(p_chain_id uuid[], p_error text[], p_now timestamptz)
returns uuid[]
language plpgsql as $$
declare
  v_failed record;
  v_fallen uuid[];
  v_all uuid[];
begin
  for v_failed in
    select u.chain_id, u.error from unnest(p_chain_id, p_error) u(chain_id, error)
  loop
    v_fallen := array_remove(
      skep.chain_fallout(array[v_failed.chain_id], false), v_failed.chain_id);
    perform skep.chain_close(array[v_failed.chain_id], 'failed', v_failed.error, p_now);
    perform skep.chain_close(
      v_fallen, 'failed', format('it waits for chain %s, which failed', v_failed.chain_id), p_now);
    v_all := v_all || v_fallen;
  end loop;
  return v_all;
end $$;
