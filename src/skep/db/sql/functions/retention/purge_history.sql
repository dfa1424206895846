-- purge_history: delete some of the oldest history of retention. One step of a run.
-- Takes   p_service, p_holder: as apply_retention. p_keep_s. p_limit.
-- Returns how many were deleted.
-- Raises  SK423 as assert_leadership.
-- Locks   the deleted rows.
-- Why     The history must not grow without bound.
create function skep.purge_history(
  p_service text, p_holder uuid, p_keep_s integer, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_count bigint;
begin
  perform skep.assert_leadership(p_service, p_holder);
  delete from skep.retention_history h
  using (
    select o.id from skep.retention_history o
    where o.started_at < skep.now() - make_interval(secs => p_keep_s)
    order by o.started_at limit p_limit
  ) old
  where h.id = any(array[old.id]);
  get diagnostics v_count = row_count;
  return v_count;
end $$;
