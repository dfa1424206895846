/*
chain_find: find the next chains that match a filter, the newest first.

Takes   what chain_where takes; p_limit.
Returns ids, descending.
Locks   none.
Why     What is changed by a filter is changed in batches, each a transaction, and the id of the last
        is where the next begins. From the newest on, so that what is started meanwhile is not met,
        and the end comes; and so that chains go before those that they waited for.
*/
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
