/*
job_matches: count the jobs that match a filter, up to a bound.

Takes   what job_scope takes; p_bound.
Returns how many there are, p_bound if there are more.
Locks   none.
Why     As chain_matches.
*/
create function skep.job_matches(
  p_type text, p_state text, p_chain_id uuid, p_ids uuid[], p_blocked_by uuid, p_bound integer)
returns bigint
language plpgsql stable as $$
declare
  v_scope record;
  v_count bigint;
begin
  select * into v_scope
  from skep.job_scope(p_type, p_state, p_chain_id, p_ids, p_blocked_by, true, null);
  execute format(
    'select count(*) from (select from %s where %s limit $1) j', v_scope.source, v_scope.condition)
  into v_count using p_bound;
  return v_count;
end $$;
