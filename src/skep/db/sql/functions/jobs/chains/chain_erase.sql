-- chain_erase: delete every row of chains.
-- Takes   p_chain_id: locked chains that no job of another chain references.
-- Returns the ids of the deleted chains.
-- Locks   none; the caller holds the chains (chain_lock).
-- Why     The one place that knows every table with rows of a chain.
create function skep.chain_erase(p_chain_id uuid[]) returns setof uuid
language plpgsql as $$
begin
  delete from skep.blocker b using skep.job j
  where j.chain_id = any (p_chain_id) and b.job_id = j.id;
  delete from skep.job_attempt a using skep.job j
  where j.chain_id = any (p_chain_id) and a.job_id = j.id;
  delete from skep.job_progress p using skep.job j
  where j.chain_id = any (p_chain_id) and p.job_id = j.id;
  delete from skep.open_job o where o.chain_id = any (p_chain_id);
  delete from skep.job j where j.chain_id = any (p_chain_id);
  delete from skep.chain_key k using skep.chain c
  where c.id = any (p_chain_id) and k.type_id = c.type_id and k.key = c.key and k.chain_id = c.id;
  return query
  delete from skep.chain c where c.id = any (p_chain_id) returning c.id;
end $$;
