-- purge_redrives: delete some old records of redrives. One step of a run.
-- Takes   p_service, p_holder: as apply_retention. p_keep_s. p_limit: rows per table.
-- Returns how many rows were deleted from the table that lost more.
-- Raises  SK423 as assert_leadership.
-- Locks   the deleted rows, skipping locked ones.
-- Why     A running job is kept, however old it is.
create function skep.purge_redrives(
  p_service text, p_holder uuid, p_keep_s integer, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_cutoff constant timestamptz := skep.now() - make_interval(secs => p_keep_s);
  v_jobs bigint;
  v_letters bigint;
begin
  perform skep.assert_leadership(p_service, p_holder);
  delete from skep.redrive r
  using (
    select o.id from skep.redrive o
    where o.created_at < v_cutoff and o.finished_at < v_cutoff
    order by o.created_at limit p_limit
    for update skip locked
  ) old
  where r.id = any(array[old.id]);
  get diagnostics v_jobs = row_count;
  delete from skep.redriven_letter r
  using (
    select o.id from skep.redriven_letter o
    where o.redriven_at < v_cutoff
    order by o.redriven_at limit p_limit
    for update skip locked
  ) old
  where r.id = any(array[old.id]);
  get diagnostics v_letters = row_count;
  return greatest(v_jobs, v_letters);
end $$;
