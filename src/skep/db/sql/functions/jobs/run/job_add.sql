-- job_add: insert new jobs and their scheduling rows; fail those whose blocker did, if it says so.
-- Takes   per job, in parallel arrays: p_job_id, p_chain_id, p_position (null array: 0 for all),
--         p_type_id, p_input, p_priority, p_due_at or p_delay_s (both null: now), p_max_attempts,
--         p_limit_key, p_trace, p_is_wanted (null array: all). Blockers, in the order the job sees
--         them: p_blocked_item (1-based), p_blocker_id, p_on_failure (wait, fail or ignore). p_now.
-- Locks   none beyond the new rows; the caller holds the blockers' chains for share, and a
--         continued chain.
-- Why     Blockers that the job awaits (job_awaits) are counted here and decremented by chain_close,
--         so the blockers of a job are never scanned again. Most calls add one job in a user's
--         transaction, where fixed costs per statement matter: jobs without blockers pay for none.
create function skep.job_add(
  p_job_id uuid[], p_chain_id uuid[], p_position integer[], p_type_id integer[], p_input text[],
  p_priority smallint[], p_due_at timestamptz[], p_delay_s double precision[],
  p_max_attempts integer[], p_limit_key text[], p_trace text[], p_is_wanted boolean[],
  p_blocked_item integer[], p_blocker_id uuid[], p_on_failure text[], p_now timestamptz)
returns void
language plpgsql as $$
declare
  v_blockers integer[];
  v_open_blockers integer[];
  v_fallen uuid[];
begin
  insert into skep.job (
    id, chain_id, position, type_id, priority, max_attempts, limit_key, input, created_at, trace)
  select u.id, u.chain_id, coalesce(u.position, 0), u.type_id, u.priority, u.max_attempts,
         u.limit_key, u.input::json, p_now, u.trace
  from unnest(p_job_id, p_chain_id, p_position, p_type_id, p_priority, p_max_attempts, p_limit_key,
              p_input, p_trace, p_is_wanted)
    u(id, chain_id, position, type_id, priority, max_attempts, limit_key, input, trace, is_wanted)
  where u.is_wanted is not false;

  if cardinality(p_blocker_id) > 0 then
    insert into skep.blocker (job_id, position, chain_id, on_failure)
    select p_job_id[u.item], row_number() over (partition by u.item order by u.place), u.chain_id,
           u.on_failure
    from unnest(p_blocked_item, p_blocker_id, p_on_failure) with ordinality
      u(item, chain_id, on_failure, place)
    where p_is_wanted[u.item] is not false;
    select array_agg(coalesce(b.blockers, 0) order by n.item),
           array_agg(coalesce(b.open_blockers, 0) order by n.item)
    into v_blockers, v_open_blockers
    from generate_subscripts(p_job_id, 1) n(item)
    left join (
      select e.item, count(*)::integer as blockers,
             (count(*) filter (
               where skep.job_awaits(c.state, e.on_failure)))::integer as open_blockers
      from unnest(p_blocked_item, p_blocker_id, p_on_failure) e(item, chain_id, on_failure)
      cross join lateral (select c.state from skep.chain c where c.id = e.chain_id offset 0) c
      group by e.item
    ) b on b.item = n.item;
  end if;

  insert into skep.open_job (
    job_id, chain_id, type_id, priority, due_at, max_attempts, limit_key, blockers, open_blockers)
  select u.id, u.chain_id, u.type_id, u.priority,
         greatest(p_now, coalesce(u.due_at, p_now + make_interval(secs => u.delay_s))),
         u.max_attempts, u.limit_key, coalesce(u.blockers, 0), coalesce(u.open_blockers, 0)
  from unnest(p_job_id, p_chain_id, p_type_id, p_priority, p_due_at, p_delay_s, p_max_attempts,
              p_limit_key, v_blockers, v_open_blockers, p_is_wanted)
    u(id, chain_id, type_id, priority, due_at, delay_s, max_attempts, limit_key, blockers,
      open_blockers, is_wanted)
  where u.is_wanted is not false;

  if cardinality(p_blocker_id) > 0 then
    select array_agg(distinct p_chain_id[b.item]) into v_fallen
    from unnest(p_blocked_item, p_blocker_id, p_on_failure) b(item, blocker_id, on_failure)
    join skep.chain c on c.id = b.blocker_id and c.state in ('failed', 'cancelled')
    where b.on_failure = 'fail' and p_is_wanted[b.item] is not false;
    if v_fallen is not null then
      perform skep.chain_close(
        skep.chain_fallout(v_fallen, false), 'failed', 'a chain it waits for did not complete',
        p_now);
    end if;
  end if;
end $$;
