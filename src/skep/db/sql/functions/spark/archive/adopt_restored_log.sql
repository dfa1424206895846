-- adopt_restored_log: make a log restored from a dump readable.
-- Returns how many segments were renumbered.
-- Locks   the segments, in one transaction that may take long.
-- Why     Segments carry the id of their transaction. A dump keeps it, but the new server counts
--         from the start, so its snapshots consider these transactions as future ones. Run once by
--         a person after the restore, before Spark readers start. Their positions and holds mean
--         nothing here and are deleted.
create function skep.adopt_restored_log() returns bigint
language plpgsql as $$
declare
  v_segments bigint;
begin
  update skep.segment s set xid = pg_current_xact_id()
  where s.xid >= pg_snapshot_xmax(pg_current_snapshot());
  get diagnostics v_segments = row_count;
  delete from skep.removed_span;
  delete from skep.hold;
  delete from skep.reader;
  return v_segments;
end $$;
