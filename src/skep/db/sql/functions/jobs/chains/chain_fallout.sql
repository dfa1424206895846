-- chain_fallout: find the open chains that end when some chains do not complete.
-- Takes   p_chain_id: chains that fail or are cancelled. p_all: also dependants that would
--         otherwise keep waiting.
-- Returns the ids of these chains and of all open ones that fall with them.
-- Why     Chains are locked in ascending id, so the whole set must be known first. Once the first
--         ones are locked, no job can start to wait for them; a caller that finds more later locks
--         those late, and a deadlock would end as a repeated call.
create function skep.chain_fallout(p_chain_id uuid[], p_all boolean) returns uuid[]
language sql stable as $$
  with recursive fallen as (
    select u.id from unnest(p_chain_id) u(id)
    union
    select o.chain_id
    from fallen f
    cross join lateral (
      select b.job_id from skep.blocker b
      where b.chain_id = f.id and (p_all or b.on_failure = 'fail') offset 0
    ) b
    cross join lateral (
      select o.chain_id from skep.open_job o where o.job_id = b.job_id offset 0
    ) o
  )
  select array_agg(f.id order by f.id) from fallen f;
$$;
