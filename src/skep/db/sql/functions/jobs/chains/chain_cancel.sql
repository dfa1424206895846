-- chain_cancel: cancel chains.
-- Takes   p_chain_id; p_cascade: also all chains that wait for them; p_reason.
-- Returns per chain named or affected: chain_id, outcome (cancelled, missing, or the state in which
--         it had closed), job_id (its running job, else null).
-- Locks   as chain_lock, waiting.
-- Why     Waiting jobs never run; running jobs lose their claim, and their workers are told.
--         Without p_cascade only jobs that asked for it fail with their blockers; the others keep
--         waiting, because a cancelled chain can be retried.
create function skep.chain_cancel(p_chain_id uuid[], p_cascade boolean, p_reason text)
returns table (chain_id uuid, outcome text, job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_open uuid[];
  v_fallen uuid[];
begin
  perform skep.chain_lock(skep.chain_fallout(p_chain_id, p_cascade), true);
  v_now := skep.now();
  select array_agg(c.id) into v_open from skep.chain c
  where c.id = any (p_chain_id) and c.state = 'open';
  v_fallen := skep.chain_fallout(v_open, p_cascade);
  return query
  select u.id, case when c.state = 'open' then 'cancelled' else coalesce(c.state, 'missing') end,
         o.job_id
  from unnest(array(
         select distinct x.id from unnest(p_chain_id || v_fallen) x(id) order by x.id)) u(id)
  left join skep.chain c on c.id = u.id
  left join skep.open_job o on o.chain_id = c.id and o.worker_id is not null;
  if v_open is not null then
    perform skep.chain_close(
      case when p_cascade then v_fallen else v_open end, 'cancelled', p_reason, v_now);
    perform skep.chain_close(
      array(select x.id from unnest(v_fallen) x(id) where x.id <> all (v_open)), 'failed',
      'a chain it waits for was cancelled', v_now)
    where not p_cascade;
  end if;
end $$;
