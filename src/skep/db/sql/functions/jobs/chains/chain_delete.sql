-- chain_delete: delete chains with all their jobs, or none of them.
-- Takes   p_chain_id; p_cascade: also the chains that wait or waited for them, and the chains that
--         the jobs of all these wait or waited for, recursively.
-- Returns rows of (chain_id, referenced_by). All deleted: one row per chain, referenced_by null.
--         Otherwise nothing is deleted, and each row names a chain and an outside job that
--         references it. Missing chains are ignored.
-- Locks   as chain_lock, waiting.
-- Why     A job reads the outputs of its blockers, so they cannot go before it. The set is found
--         first, through every job of each chain, and checked again under the locks: no job can
--         start to wait for a locked chain.
create function skep.chain_delete(p_chain_id uuid[], p_cascade boolean)
returns table (chain_id uuid, referenced_by uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  v_ids uuid[] := p_chain_id;
begin
  if p_cascade then
    with recursive dependent as (
      select u.id from unnest(p_chain_id) u(id)
      union
      select j.chain_id from dependent d
      cross join lateral (
        select b.job_id from skep.blocker b where b.chain_id = d.id offset 0
      ) b
      cross join lateral (select j.chain_id from skep.job j where j.id = b.job_id offset 0) j
    ), connected as (
      select d.id from dependent d
      union
      select b.chain_id from connected d
      cross join lateral (select j.id from skep.job j where j.chain_id = d.id offset 0) j
      cross join lateral (
        select b.chain_id from skep.blocker b where b.job_id = j.id offset 0
      ) b
    )
    select array_agg(d.id) into v_ids from connected d;
  end if;
  v_ids := skep.chain_lock(v_ids, true);

  return query
  select b.chain_id, b.job_id
  from skep.blocker b
  join skep.job j on j.id = b.job_id
  where b.chain_id = any (v_ids) and j.chain_id <> all (v_ids)
  order by b.chain_id, b.job_id;
  if found then
    return;
  end if;
  return query
  select c.chain_id, null::uuid from skep.chain_erase(v_ids, false) c(chain_id) order by c.chain_id;
end $$;
