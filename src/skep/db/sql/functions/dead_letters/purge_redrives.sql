-- purge_redrives: delete some old records of redrives. One step of a run.
-- Takes   as apply_retention. p_limit: rows per table.
-- Returns how many rows were deleted from the table that lost more.
-- Raises  SK423 as assert_leadership.
-- Locks   as delete_before.
-- Why     A running job is kept, however old it is.
create function skep.purge_redrives(
  p_service text, p_holder uuid, p_keep_s integer, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_cutoff constant timestamptz := skep.now() - make_interval(secs => p_keep_s);
begin
  perform skep.assert_leadership(p_service, p_holder);
  return greatest(
    skep.delete_before(
      'redrive', 'o.created_at < $1 and o.finished_at < $1 order by o.created_at', v_cutoff,
      p_limit),
    skep.delete_before(
      'redriven_letter', 'o.redriven_at < $1 order by o.redriven_at', v_cutoff, p_limit));
end $$;
