-- purge_history: delete some of the oldest history of retention. One step of a run.
-- Takes   as apply_retention.
-- Returns how many were deleted.
-- Raises  SK423 as assert_leadership.
-- Locks   as delete_before.
-- Why     The history must not grow without bound.
create function skep.purge_history(
  p_service text, p_holder uuid, p_keep_s integer, p_limit integer) returns bigint
language plpgsql as $$
begin
  perform skep.assert_leadership(p_service, p_holder);
  return skep.delete_before(
    'retention_history', 'o.started_at < $1 order by o.started_at',
    skep.now() - make_interval(secs => p_keep_s), p_limit);
end $$;
