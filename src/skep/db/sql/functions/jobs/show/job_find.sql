-- job_find: find the next jobs that match a filter, newest first.
-- Takes   as job_scope; p_limit.
-- Returns ids, descending.
-- Why     As chain_find.
create function skep.job_find(
  p_type text, p_state text, p_chain_id uuid, p_ids uuid[], p_blocked_by uuid,
  p_created_from timestamptz, p_created_to timestamptz, p_after uuid,
  p_limit integer)
returns setof uuid
language plpgsql stable as $$
declare
  v_scope record;
begin
  select * into v_scope
  from skep.job_scope(p_type, p_state, p_chain_id, p_ids, p_blocked_by, p_created_from,
                      p_created_to, true, p_after);
  return query execute format(
    'select j.id from %s where %s order by %s desc limit $1',
    v_scope.source, v_scope.condition, v_scope.key)
  using p_limit;
end $$;
