-- adopt_restored_log: make a log restored from a dump readable.
-- Returns how many segments were renumbered.
-- Locks   the skep.identity row, then the segments, in one transaction that may take long.
-- Why     Segments carry the id of their transaction. A dump keeps it, but the new server counts
--         from the start, so its snapshots consider these transactions as future ones. Run once by
--         a person after the restore (`skep adopt`), before Spark readers start. Their positions
--         and holds mean nothing here and are deleted, and so is the name the log had there.
create function skep.adopt_restored_log() returns bigint
language plpgsql as $$
declare
  v_segments bigint;
begin
  update skep.identity i
  set server = skep.server_identity(), name = skep.server_identity(), xid = pg_current_xact_id();
  update skep.segment s set xid = pg_current_xact_id()
  where s.xid >= pg_snapshot_xmax(pg_current_snapshot());
  get diagnostics v_segments = row_count;
  delete from skep.removed_span;
  delete from skep.timeline;
  delete from skep.hold;
  delete from skep.reader;
  return v_segments;
end $$;
