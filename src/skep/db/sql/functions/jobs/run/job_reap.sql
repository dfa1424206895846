-- job_reap: take jobs away from workers whose lease expired.
-- Takes   p_limit: jobs.
-- Returns per job: job_id, chain_id, type (name), attempt, worker_id, is_failed (it was the last
--         attempt), has_more (the same in all rows: call again).
-- Locks   expired skep.job_worker rows for update, skipping locked ones; then as chain_lock,
--         without waiting.
-- Why     Any worker may call it. A lost attempt is recorded and counts, so a job that kills its
--         worker every time ends as failed. A worker is deleted with its last job, so no claim is
--         overlooked.
create function skep.job_reap(p_limit integer)
returns table (
  job_id uuid, chain_id uuid, type text, attempt integer, worker_id uuid, is_failed boolean,
  has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_worker_id uuid[];
  v_job_id uuid[];
  v_chain_id uuid[];
  v_locked uuid[];
  v_exhausted uuid[];
  v_error constant text := 'the worker was lost';
begin
  select array_agg(w.id) into v_worker_id from (
    select w.id from skep.job_worker w where w.expires_at <= v_now
    order by w.id for update skip locked
  ) w;
  if v_worker_id is null then
    return;
  end if;
  select array_agg(o.job_id), array_agg(o.chain_id),
         array_agg(o.chain_id) filter (where o.failures + 1 >= o.max_attempts)
  into v_job_id, v_chain_id, v_exhausted
  from (
    select o.job_id, o.chain_id, o.failures, o.max_attempts
    from skep.open_job o where o.worker_id = any (v_worker_id) limit p_limit
  ) o;
  v_locked := skep.chain_lock(
    v_chain_id || case when v_exhausted is not null
                       then skep.chain_fallout(v_exhausted, false) end, false);

  return query
  with lost as (
    select o.* from skep.open_job o
    where o.job_id = any (v_job_id) and o.worker_id = any (v_worker_id)
      and o.chain_id = any (v_locked)
  ), noted as (
    insert into skep.job_attempt (
      job_id, attempt, outcome, worker_id, started_at, ended_at, error)
    select l.job_id, l.attempt, 'lost', l.worker_id, l.claimed_at, v_now, v_error from lost l
  ), returned as (
    update skep.open_job o
    set worker_id = null, claimed_at = null, failures = o.failures + 1,
        due_at = greatest(o.due_at, v_now)
    from lost l where o.job_id = l.job_id
  )
  select l.job_id, l.chain_id, t.name, l.attempt, l.worker_id, l.failures + 1 >= l.max_attempts,
         cardinality(v_job_id) = p_limit
  from lost l join skep.job_type t on t.id = l.type_id;

  select array_agg(o.chain_id) into v_exhausted
  from skep.open_job o
  where o.chain_id = any (v_exhausted) and o.chain_id = any (v_locked)
    and o.worker_id is null and o.failures >= o.max_attempts;
  if v_exhausted is not null then
    perform skep.chain_fail(
      v_exhausted, array_fill(v_error, array[cardinality(v_exhausted)]), v_now);
  end if;
  delete from skep.job_worker w
  where w.id = any (v_worker_id)
    and not exists (select from skep.open_job o where o.worker_id = w.id);
end $$;
