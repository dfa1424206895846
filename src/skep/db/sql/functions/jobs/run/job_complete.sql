-- job_complete: complete one job, and with it its chain, in the transaction of its handler.
-- Takes   p_worker_id, p_attempt: the token; p_chain_id, p_job_id; p_output (JSON).
-- Returns one row as job_settle: outcome (settled, lost), closed, woken.
-- Locks   as job_settle, waiting.
-- Why     The common case of job_settle at a third of its cost: single-row statements instead of
--         eight joins over arrays of one. A chain with dependants goes through job_settle; no job
--         can start to wait for it while it is locked. Planned for full tables (ADR 0004).
create function skep.job_complete(
  p_worker_id uuid, p_chain_id uuid, p_job_id uuid, p_attempt integer, p_output text)
returns table (outcome text, closed uuid[], woken text[])
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_open record;
  v_chain record;
begin
  perform 1 from skep.chain c where c.id = p_chain_id for no key update;
  if exists (select from skep.blocker b where b.chain_id = p_chain_id) then
    return query
    select s.outcome, s.closed, s.woken
    from skep.job_settle(
      p_worker_id, array[p_job_id], array[p_attempt], array['completed'], array[p_output],
      array[null::text], array[null::double precision], array[null::timestamptz],
      array[null::uuid], array[null::text], array[null::text], array[null::smallint],
      array[null::integer], array[null::text], array[null::text], '{}', '{}', '{}'::text[],
      true) s;
    return;
  end if;
  v_now := skep.now();
  -- Not "worker_id =": the planner would walk all running jobs if it believes they are few.
  delete from skep.open_job o
  where o.job_id = p_job_id and o.attempt = p_attempt
    and o.worker_id is not distinct from p_worker_id
  returning o.type_id, o.claimed_at into v_open;
  if not found then
    return query select 'lost', '{}'::uuid[], '{}'::text[];
    return;
  end if;
  update skep.job j
  set state = 'completed', output = p_output::json, error = null, attempts = p_attempt,
      worker_id = p_worker_id, started_at = v_open.claimed_at, finished_at = v_now
  where j.id = p_job_id;
  update skep.chain c set state = 'completed', closed_at = v_now, error = null
  where c.id = p_chain_id
  returning c.type_id, c.key into v_chain;
  if v_chain.key is not null then
    update skep.chain_key k set is_open = false
    where k.type_id = v_chain.type_id and k.key = v_chain.key and k.chain_id = p_chain_id;
  end if;
  return query
  select 'settled', array[p_chain_id],
         array(select t.name from skep.job_type t
               where t.id = v_open.type_id
                 and (t.concurrency is not null or t.key_concurrency is not null));
end $$;
