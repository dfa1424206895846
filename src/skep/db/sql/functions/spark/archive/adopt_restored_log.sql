/*
adopt_restored_log: make a log readable that was restored from a dump.

Takes   nothing.
Returns how many segments it renumbered.
Locks   the segments; in one transaction, which may take long.
Why     Segments carry the id of the transaction that wrote them. A dump keeps it, but the server
        it is restored to counts from the start: to its snapshots these transactions are still to
        come. Run once by a person after the restore, before readers on Spark begin. What they and
        their holds knew about positions means nothing here and is forgotten.
*/
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
