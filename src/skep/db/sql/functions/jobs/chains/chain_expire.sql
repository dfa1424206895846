-- chain_expire: fail chains whose deadline has passed.
-- Returns per failed chain: chain_id, type, is_late (false: it failed with one that it waits for),
--         job_id (its running job, else null).
-- Locks   as chain_lock, without waiting.
-- Why     A deadline ends a chain in any state: blocked, waiting or running.
create function skep.chain_expire(p_limit integer)
returns table (chain_id uuid, type text, is_late boolean, job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_late uuid[];
  v_locked uuid[];
begin
  select array_agg(c.id) into v_late from (
    select c.id from skep.chain c
    where c.deadline_at <= v_now and c.state = 'open' order by c.deadline_at limit p_limit
  ) c;
  if v_late is null then
    return;
  end if;
  v_locked := skep.chain_lock(skep.chain_fallout(v_late, false), false);
  v_late := array(
    select c.id from skep.chain c
    where c.id = any (v_late) and c.id = any (v_locked) and c.state = 'open');
  return query
  select c.id, t.name, c.id = any (v_late), o.job_id from skep.chain c
  join skep.job_type t on t.id = c.type_id
  left join skep.open_job o on o.chain_id = c.id and o.worker_id is not null
  where c.id = any (skep.chain_fallout(v_late, false)) and c.state = 'open';
  perform skep.chain_fail(
    v_late, array_fill('the deadline has passed'::text, array[cardinality(v_late)]), v_now);
end $$;
