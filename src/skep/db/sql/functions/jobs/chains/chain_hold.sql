-- chain_hold: lock a chain to settle its open job from outside.
-- Returns one row, none if there is no such chain: state, type, and of its last job job_id,
--         attempt, job_type, input, is_running.
-- Locks   as chain_lock, waiting, until the transaction ends.
-- Why     The last job is read under the lock: a worker that was continuing the chain has finished
--         then. Planned for full tables (ADR 0004).
create function skep.chain_hold(p_chain_id uuid)
returns table (
  state text, type text, job_id uuid, attempt integer, job_type text, input text,
  is_running boolean)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  perform skep.chain_lock(array[p_chain_id], true);
  return query
  select c.state, t.name, j.id, coalesce(o.attempt, j.attempts), s.name, j.input::text,
         o.worker_id is not null
  from skep.chain c
  join skep.job_type t on t.id = c.type_id
  join skep.job j on j.id = c.last_job_id
  join skep.job_type s on s.id = j.type_id
  left join skep.open_job o on o.job_id = j.id
  where c.id = p_chain_id;
end $$;
