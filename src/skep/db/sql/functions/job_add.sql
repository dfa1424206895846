/*
job_add: write new jobs and what the scheduler needs of them.

Takes   per job, in parallel arrays: p_job_id, p_chain_id, p_position, p_type_id, p_input,
        p_priority, p_due_at, p_max_attempts, p_limit_key, p_trace; the chains they wait for:
        p_blocked_id (one of the jobs), p_blocker_id, p_is_fatal, in the order in which the job
        will see them; p_now.
Returns nothing.
Locks   new rows only; the caller holds the blockers' chains for share, and a continued chain.
Why     Blockers that are completed already are not counted. The others are counted here and
        counted down by chain_close, one row after the other: nobody ever has to look at all
        blockers of a job again.
*/
create function skep.job_add(
  p_job_id uuid[], p_chain_id uuid[], p_position integer[], p_type_id integer[], p_input text[],
  p_priority smallint[], p_due_at timestamptz[], p_max_attempts integer[], p_limit_key text[],
  p_trace text[], p_blocked_id uuid[], p_blocker_id uuid[], p_is_fatal boolean[],
  p_now timestamptz)
returns void
language plpgsql as $$
#variable_conflict use_column
begin
  insert into skep.job (
    id, chain_id, position, type_id, priority, max_attempts, limit_key, input, created_at, trace)
  select u.id, u.chain_id, u.position, u.type_id, u.priority, u.max_attempts, u.limit_key,
         u.input::json, p_now, u.trace
  from unnest(p_job_id, p_chain_id, p_position, p_type_id, p_priority, p_max_attempts, p_limit_key,
              p_input, p_trace)
    u(id, chain_id, position, type_id, priority, max_attempts, limit_key, input, trace);

  if cardinality(p_blocked_id) > 0 then
    insert into skep.blocker (job_id, position, chain_id, is_fatal)
    select u.job_id, row_number() over (partition by u.job_id order by u.place), u.chain_id,
           u.is_fatal
    from unnest(p_blocked_id, p_blocker_id, p_is_fatal) with ordinality
      u(job_id, chain_id, is_fatal, place);
  end if;

  insert into skep.open_job (
    job_id, chain_id, type_id, priority, due_at, max_attempts, limit_key, blockers, open_blockers)
  select u.id, u.chain_id, u.type_id, u.priority, u.due_at, u.max_attempts, u.limit_key,
         coalesce(b.blockers, 0), coalesce(b.open_blockers, 0)
  from unnest(p_job_id, p_chain_id, p_type_id, p_priority, p_due_at, p_max_attempts, p_limit_key)
    u(id, chain_id, type_id, priority, due_at, max_attempts, limit_key)
  left join (
    select e.job_id, count(*)::integer as blockers,
           (count(*) filter (where c.state <> 'completed'))::integer as open_blockers
    from unnest(p_blocked_id, p_blocker_id) e(job_id, chain_id)
    cross join lateral (select c.state from skep.chain c where c.id = e.chain_id offset 0) c
    group by e.job_id
  ) b on b.job_id = u.id;
end $$;
