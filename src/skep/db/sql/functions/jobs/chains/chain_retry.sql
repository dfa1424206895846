-- chain_retry: reopen failed and cancelled chains at the job where they ended.
-- Returns per chain: chain_id; outcome: retried (its last job is open again, with fresh failures),
--         missing, key_taken (another chain holds its key), open or completed (nothing to retry);
--         type: the name of that job.
-- Locks   as chain_lock, waiting; then blockers' skep.chain rows for share, in ascending id; then
--         skep.chain_key rows.
-- Why     The attempt number goes on, because it is the fencing token; failures start anew. Open
--         blockers are counted again: they may have closed or been retried since. A job that
--         ignored the failure, and still waits for others, waits for the retried chain again.
create function skep.chain_retry(p_chain_id uuid[])
returns table (chain_id uuid, outcome text, type text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_ids constant uuid[] := array(select distinct u.id from unnest(p_chain_id) u(id) order by u.id);
  v_taken uuid[];
  v_again uuid[];
begin
  perform skep.chain_lock(v_ids, true);
  perform 1 from (
    select distinct b.chain_id as id from skep.chain c
    join skep.blocker b on b.job_id = c.last_job_id
    where c.id = any (v_ids) order by b.chain_id
  ) b cross join lateral (select 1 from skep.chain x where x.id = b.id for share) x;
  v_now := skep.now();
  update skep.chain_key k set is_open = true
  from skep.chain c
  where c.id = any (v_ids) and c.state in ('failed', 'cancelled')
    and k.type_id = c.type_id and k.key = c.key and k.chain_id = c.id;
  select array_agg(c.id) into v_taken
  from skep.chain c
  join skep.chain_key k on k.type_id = c.type_id and k.key = c.key
  where c.id = any (v_ids) and k.chain_id <> c.id and k.is_open;

  return query
  select u.id,
         case when c.id is null then 'missing'
              when c.state in ('open', 'completed') then c.state
              when c.id = any (v_taken) then 'key_taken'
              else 'retried' end,
         t.name
  from unnest(v_ids) u(id)
  left join skep.chain c on c.id = u.id
  left join skep.job j on j.id = c.last_job_id
  left join skep.job_type t on t.id = j.type_id;

  with opened as (
    update skep.chain c set state = 'open', closed_at = null, error = null, deadline_at = null
    where c.id = any (v_ids) and c.state in ('failed', 'cancelled')
      and (v_taken is null or c.id <> all (v_taken))
    returning c.id, c.last_job_id
  ), awaited as (
    select b.job_id, count(*)::integer as chains
    from opened c join skep.blocker b on b.chain_id = c.id
    where b.on_failure = 'ignore' group by b.job_id
  ), counted as (
    update skep.open_job o set open_blockers = o.open_blockers + a.chains
    from awaited a where o.job_id = a.job_id and o.open_blockers > 0
  )
  select array_agg(o.last_job_id) into v_again from opened o;
  update skep.job j set state = 'open', error = null, finished_at = null
  where j.id = any (v_again);
  insert into skep.open_job (
    job_id, chain_id, type_id, priority, due_at, max_attempts, limit_key, attempt, blockers,
    open_blockers)
  select j.id, j.chain_id, j.type_id, j.priority, v_now, j.max_attempts, j.limit_key, j.attempts,
         b.blockers, b.open_blockers
  from skep.job j
  cross join lateral (
    select count(*)::integer as blockers,
           (count(*) filter (
             where skep.job_awaits(x.state, b.on_failure)))::integer as open_blockers
    from skep.blocker b join skep.chain x on x.id = b.chain_id where b.job_id = j.id
  ) b
  where j.id = any (v_again);
end $$;
