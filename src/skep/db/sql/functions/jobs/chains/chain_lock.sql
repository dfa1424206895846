-- chain_lock: lock chains to be closed, and everything that closing them changes.
-- Takes   p_chain_id: in any order. p_wait: wait for locked chains, or leave them out.
-- Returns the ids of the locked chains.
-- Locks   skep.chain rows for no key update, in ascending id (skipping locked ones unless p_wait);
--         then in one ascending pass the skep.open_job rows of these chains and of jobs that wait
--         for them.
-- Why     One pass over both kinds of open jobs, because a job that waits for one chain may be the
--         last job of another. The set cannot change meanwhile: adding a waiting job needs the
--         chain for share, and adding a last job needs it as locked here.
create function skep.chain_lock(p_chain_id uuid[], p_wait boolean) returns uuid[]
language plpgsql as $$
declare
  v_locked uuid[];
begin
  if p_wait then
    select array_agg(c.id) into v_locked
    from (select distinct u.id from unnest(p_chain_id) u(id) order by u.id) u
    cross join lateral (
      select c.id from skep.chain c where c.id = u.id for no key update
    ) c;
  else
    select array_agg(c.id) into v_locked
    from (select distinct u.id from unnest(p_chain_id) u(id) order by u.id) u
    cross join lateral (
      select c.id from skep.chain c where c.id = u.id for no key update skip locked
    ) c;
  end if;
  perform 1
  from (
    select c.last_job_id as job_id from unnest(v_locked) u(id)
    cross join lateral (select c.last_job_id from skep.chain c where c.id = u.id offset 0) c
    union
    select b.job_id from unnest(v_locked) u(id)
    cross join lateral (select b.job_id from skep.blocker b where b.chain_id = u.id offset 0) b
    order by job_id
  ) j
  cross join lateral (
    select 1 from skep.open_job o where o.job_id = j.job_id for no key update
  ) o;
  return coalesce(v_locked, '{}');
end $$;
