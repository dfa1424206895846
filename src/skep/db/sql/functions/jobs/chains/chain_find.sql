-- chain_find: find the next chains that match a filter, newest first.
-- Takes   as chain_where; p_limit.
-- Returns ids, descending.
-- Why     Bulk changes run in batches, each its own transaction; the last id is where the next
--         begins. Newest first, so that chains started meanwhile are not met, and chains go before
--         their blockers.
create function skep.chain_find(
  p_type text, p_state text, p_parent_job_id uuid, p_key text, p_ids uuid[],
  p_created_from timestamptz, p_created_to timestamptz, p_after uuid, p_limit integer)
returns setof uuid
language plpgsql stable as $$
begin
  return query execute format(
    'select c.id from skep.chain c where %s order by c.id desc limit $1',
    skep.chain_where(p_type, p_state, p_parent_job_id, p_key, p_ids, p_created_from,
                     p_created_to, true, p_after))
  using p_limit;
end $$;
