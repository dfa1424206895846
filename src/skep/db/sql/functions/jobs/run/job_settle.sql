-- job_settle: record the outcomes of jobs.
-- Takes   p_worker_id: the claiming worker, null when the caller settles from outside under
--         chain_hold. Per job, in parallel arrays: p_job_id, p_attempt (the token) and p_outcome:
--           completed     with p_output (JSON); the chain completes
--           continued     with the next job (p_next_*), due after p_delay_s or at p_due_at
--           retry         failed with p_error; again after p_delay_s seconds or at p_due_at
--           rescheduled   not failed; again after p_delay_s seconds or at p_due_at
--           released      not started; again at once
--           failed        with p_error, for good; the chain fails
--         Blockers of continuations: p_blocked_item (1-based), p_blocker_id, p_on_failure.
--         p_wait: wait for locked chains.
-- Returns per job: item; outcome: settled; lost (the claim is gone), busy (its chain or a blocker
--         is locked; never with p_wait), missing_blocker, cyclic (a blocker waits for this chain):
--         nothing was written. closed: its chain if closed now, and on the first row all dependants
--         that fell; woken: on the first row, types with new ready jobs.
-- Locks   as chain_lock for all chains of the call and those that fall with them; then blockers of
--         continuations for share, in ascending id.
-- Why     Every write is fenced by (worker, attempt) under the lock of the open job. Without
--         p_wait, a chain held by a long transaction delays no other. Whether a failed attempt is
--         retry or failed is the worker's decision (skep/jobs/worker/retry.py). Planned for full
--         tables (ADR 0004). The variant with p_is_fatal is for workers of the release before
--         (blocker_policies).
create function skep.job_settle(
  p_worker_id uuid, p_job_id uuid[], p_attempt integer[], p_outcome text[], p_output text[],
  p_error text[], p_delay_s double precision[], p_due_at timestamptz[], p_next_id uuid[],
  p_next_type text[], p_next_input text[], p_next_priority smallint[],
  p_next_max_attempts integer[], p_next_limit_key text[], p_next_trace text[],
  p_blocked_item integer[], p_blocker_id uuid[], p_on_failure text[], p_wait boolean)
returns table (item integer, outcome text, closed uuid[], woken text[])
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_failing uuid[];
  v_locked uuid[];
  v_chain_id uuid[];
  v_answer text[];
  v_woken text[] := '{}';
  v_fallen uuid[];
begin
  select array_agg(j.chain_id order by u.item) into v_chain_id
  from unnest(p_job_id) with ordinality u(id, item)
  left join lateral (select j.chain_id from skep.job j where j.id = u.id offset 0) j on true;
  if 'failed' = any (p_outcome) then
    v_failing := array(
      select u.chain_id from unnest(v_chain_id, p_outcome) u(chain_id, outcome)
      where u.outcome = 'failed');
    v_locked := skep.chain_lock(v_chain_id || skep.chain_fallout(v_failing, false), p_wait);
  else
    v_locked := skep.chain_lock(v_chain_id, p_wait);
  end if;
  v_now := skep.now();

  select array_agg(
           case when u.chain_id is not null and u.chain_id <> all (v_locked) then 'busy'
                when o.job_id is null then 'lost'
                else 'settled' end order by u.item)
  into v_answer
  from unnest(p_job_id, p_attempt, v_chain_id) with ordinality u(id, attempt, chain_id, item)
  left join lateral (
    select o.job_id from skep.open_job o
    where o.job_id = u.id and o.attempt = u.attempt
      and (p_worker_id is null or o.worker_id = p_worker_id) offset 0
  ) o on true;
  if cardinality(p_blocker_id) > 0 then
    v_answer := skep.job_check_blockers(
      v_answer, v_chain_id, p_blocked_item, p_blocker_id, p_wait);
  end if;

  if p_outcome && array['retry', 'rescheduled', 'released'] then
    insert into skep.job_attempt (job_id, attempt, outcome, worker_id, started_at, ended_at, error)
    select u.id, u.attempt, case u.outcome when 'retry' then 'failed' else u.outcome end,
           o.worker_id, o.claimed_at, v_now, u.error
    from unnest(p_job_id, p_attempt, p_outcome, p_error, v_answer)
      u(id, attempt, outcome, error, answer)
    cross join lateral (
      select o.worker_id, o.claimed_at from skep.open_job o where o.job_id = u.id offset 0
    ) o
    where u.answer = 'settled' and u.outcome in ('retry', 'rescheduled', 'released');
    with again as (
      update skep.open_job o
      set worker_id = null, claimed_at = null,
          failures = o.failures + case u.outcome when 'retry' then 1 else 0 end,
          due_at = greatest(v_now, coalesce(u.due_at, v_now + make_interval(secs => u.delay_s),
                                            o.due_at))
      from unnest(p_job_id, p_outcome, p_delay_s, p_due_at, v_answer)
        u(id, outcome, delay_s, due_at, answer)
      where o.job_id = u.id and u.answer = 'settled'
        and u.outcome in ('retry', 'rescheduled', 'released')
      returning o.type_id
    )
    select v_woken || coalesce(array_agg(distinct t.name), '{}') into v_woken
    from again a join skep.job_type t on t.id = a.type_id;
  end if;

  with ended as (
    delete from skep.open_job o
    using unnest(p_job_id, p_outcome, p_output, p_error, v_answer)
      u(id, outcome, output, error, answer)
    where o.job_id = u.id and u.answer = 'settled'
      and u.outcome in ('completed', 'continued', 'failed')
    returning o.job_id, o.type_id, o.attempt, o.claimed_at, o.worker_id, u.outcome, u.output,
              u.error
  ), written as (
    update skep.job j
    set state = e.outcome, output = e.output::json, error = e.error, attempts = e.attempt,
        worker_id = p_worker_id, started_at = e.claimed_at, finished_at = v_now
    from ended e where j.id = e.job_id
  )
  select v_woken || coalesce(array_agg(t.name), '{}') into v_woken
  from (select distinct e.type_id from ended e) e join skep.job_type t on t.id = e.type_id
  where t.concurrency is not null or t.key_concurrency is not null;

  if 'continued' = any (p_outcome) then
    perform skep.job_continue(
      v_answer, v_chain_id, p_outcome, p_next_id, p_next_type, p_next_input, p_next_priority,
      p_next_max_attempts, p_next_limit_key, p_next_trace, p_delay_s, p_due_at, p_blocked_item,
      p_blocker_id, p_on_failure, v_now);
  end if;
  if 'completed' = any (p_outcome) then
    v_woken := v_woken || skep.chain_close(
      array(select u.chain_id from unnest(v_chain_id, p_outcome, v_answer)
              u(chain_id, outcome, answer)
            where u.answer = 'settled' and u.outcome = 'completed'), 'completed', null, v_now);
  end if;
  if v_failing is not null then
    select skep.chain_fail(array_agg(u.chain_id order by u.item),
                           array_agg(u.error order by u.item), v_now)
    into v_fallen
    from unnest(v_chain_id, p_error, p_outcome, v_answer) with ordinality
      u(chain_id, error, outcome, answer, item)
    where u.answer = 'settled' and u.outcome = 'failed';
  end if;
  return query
  select u.item::integer, u.answer,
         case when u.answer = 'settled' and u.outcome in ('completed', 'failed')
              then array[u.chain_id] else '{}' end
           || case when u.item = 1 then coalesce(v_fallen, '{}') else '{}' end,
         case when u.item = 1 then v_woken else '{}' end
  from unnest(v_answer, v_chain_id, p_outcome) with ordinality u(answer, chain_id, outcome, item)
  order by u.item;
end $$;

create function skep.job_settle(
  p_worker_id uuid, p_job_id uuid[], p_attempt integer[], p_outcome text[], p_output text[],
  p_error text[], p_delay_s double precision[], p_due_at timestamptz[], p_next_id uuid[],
  p_next_type text[], p_next_input text[], p_next_priority smallint[],
  p_next_max_attempts integer[], p_next_limit_key text[], p_next_trace text[],
  p_blocked_item integer[], p_blocker_id uuid[], p_is_fatal boolean[], p_wait boolean)
returns table (item integer, outcome text, closed uuid[], woken text[])
language sql as $$
  select * from skep.job_settle(
    p_worker_id, p_job_id, p_attempt, p_outcome, p_output, p_error, p_delay_s, p_due_at, p_next_id,
    p_next_type, p_next_input, p_next_priority, p_next_max_attempts, p_next_limit_key,
    p_next_trace, p_blocked_item, p_blocker_id, skep.blocker_policies(p_is_fatal), p_wait);
$$;
