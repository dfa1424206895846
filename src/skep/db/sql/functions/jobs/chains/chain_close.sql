-- chain_close: close chains and update the jobs that wait for them.
-- Takes   p_chain_id: open chains. p_state: completed, failed or cancelled. p_error, p_now.
-- Returns the names of types that have new ready jobs.
-- Locks   skep.chain_key rows; the caller holds the chains, their open jobs and the open jobs that
--         wait for them, in ascending id.
-- Why     A waiting job counts the blockers it awaits (job_awaits), and an end decrements the count:
--         an update sees the newest count under concurrency, where a look at all blockers would see
--         an old one and strand the job. due_at is raised to now, so that a job that was blocked
--         for long does not overtake ready ones. A chain completes by its last job, which has
--         already left open_job. Ends that are no completions are rare and written by many: they
--         notify here.
create function skep.chain_close(
  p_chain_id uuid[], p_state text, p_error text, p_now timestamptz)
returns text[]
language plpgsql as $$
declare
  v_woken text[];
  v_is_keyed boolean;
begin
  with closed as (
    update skep.chain c set state = p_state, closed_at = p_now, error = p_error
    where c.id = any (p_chain_id) and c.state = 'open'
    returning c.key
  )
  select count(c.key) > 0 into v_is_keyed from closed c;
  if v_is_keyed then
    update skep.chain_key k set is_open = false
    from skep.chain c
    where c.id = any (p_chain_id) and c.key is not null
      and k.type_id = c.type_id and k.key = c.key and k.chain_id = c.id;
  end if;

  if p_state <> 'completed' then
    -- A failed job has left open_job; waiting and running ones end with their chains.
    with ended as (
      delete from skep.open_job o
      using skep.chain c
      where c.id = any (p_chain_id) and o.job_id = c.last_job_id
      returning o.job_id, o.attempt, o.worker_id, o.claimed_at
    )
    update skep.job j
    set state = p_state, error = p_error, attempts = e.attempt, worker_id = e.worker_id,
        started_at = e.claimed_at, finished_at = p_now
    from ended e where j.id = e.job_id;
  end if;
  if not exists (
    select from skep.blocker b
    where b.chain_id = any (p_chain_id) and not skep.job_awaits(p_state, b.on_failure))
  then
    return '{}';
  end if;
  with counted as (
    update skep.open_job o
    set open_blockers = o.open_blockers - w.chains, due_at = greatest(o.due_at, p_now)
    from (
      select b.job_id, count(*)::integer as chains
      from unnest(p_chain_id) u(id)
      cross join lateral (
        select b.job_id from skep.blocker b
        where b.chain_id = u.id and not skep.job_awaits(p_state, b.on_failure) offset 0
      ) b
      group by b.job_id
    ) w
    where o.job_id = w.job_id and o.open_blockers > 0
    returning o.open_blockers, o.type_id
  )
  select array_agg(distinct t.name) into v_woken
  from counted n join skep.job_type t on t.id = n.type_id
  where n.open_blockers = 0;
  if p_state <> 'completed' and v_woken is not null then
    perform pg_notify('skep_job_ready', array_to_string(v_woken, chr(10)));
  end if;
  return coalesce(v_woken, '{}');
end $$;
