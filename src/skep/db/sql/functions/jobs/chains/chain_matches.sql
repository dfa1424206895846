/*
chain_matches: count the chains that match a filter, up to a bound.

Takes   what chain_where takes; p_bound.
Returns how many there are, p_bound if there are more.
Locks   none.
Why     It is asked before something is changed, by people who wait for the answer.
*/
create function skep.chain_matches(
  p_type text, p_state text, p_parent_job_id uuid, p_key text, p_ids uuid[],
  p_created_from timestamptz, p_created_to timestamptz, p_bound integer)
returns bigint
language plpgsql stable as $$
declare
  v_count bigint;
begin
  execute format(
    'select count(*) from (select from skep.chain c where %s limit $1) c',
    skep.chain_where(p_type, p_state, p_parent_job_id, p_key, p_ids, p_created_from,
                     p_created_to, true, null))
  into v_count using p_bound;
  return v_count;
end $$;
