-- chain_erase: delete every row of chains.
-- Takes   p_chain_id: locked chains that no job of another chain references. p_keeps_keys: keys
--         that are held longer stay, marked as pruned.
-- Returns the ids of the deleted chains.
-- Locks   skep.chain_key rows; the caller holds the chains (chain_lock).
-- Why     The one place that knows every table with rows of a chain. A key that is held for ever
--         must not end because its chain became old; a person who deletes a chain means its key too.
create function skep.chain_erase(p_chain_id uuid[], p_keeps_keys boolean) returns setof uuid
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
  update skep.chain_key k set is_pruned = true
  from skep.chain c
  where p_keeps_keys and c.id = any (p_chain_id)
    and k.type_id = c.type_id and k.key = c.key and k.chain_id = c.id
    and k.held_until > skep.now();
  delete from skep.chain_key k using skep.chain c
  where c.id = any (p_chain_id) and k.type_id = c.type_id and k.key = c.key and k.chain_id = c.id
    and not k.is_pruned;
  return query
  delete from skep.chain c where c.id = any (p_chain_id) returning c.id;
end $$;
