-- purge_history: delete some of the oldest history of retention, and records of deleted queues.
--         One step of a run.
-- Takes   as apply_retention.
-- Returns how many were deleted.
-- Raises  SK423 as assert_leadership.
-- Locks   as delete_before.
-- Why     The history must not grow without bound. A reader on Spark that was away for longer than
--         a deleted queue is on record is told that it cannot know what was in it.
create function skep.purge_history(
  p_service text, p_holder uuid, p_keep_s integer, p_limit integer) returns bigint
language plpgsql as $$
begin
  perform skep.assert_leadership(p_service, p_holder);
  return skep.delete_before(
    'retention_history', 'o.started_at < $1 order by o.started_at',
    skep.now() - make_interval(secs => p_keep_s), p_limit)
  + skep.delete_before(
    'removed_span', 'o.queue is not null and o.removed_at < $1 order by o.removed_at',
    skep.now() - make_interval(secs => p_keep_s), p_limit);
end $$;
