-- mark_time: a moment, and what has to end before all messages stored up to it can be read.
-- Returns one row. at: the moment. mark: a message stored up to then is of a transaction below it.
--         running_from: no transaction below this is running. Where it is not below the mark of a
--         moment, now or later, every message stored up to that moment is committed or never will
--         be.
-- Locks   none.
-- Why     A time that a clock tells is not safe to read up to: a push that has taken its time may
--         commit later. Every function that stores messages takes the time after it has its
--         transaction id, so the id drawn here after the clock was read is above all those. The
--         end of a snapshot would not do: it names the latest transaction that has ended, not the
--         latest that has begun. A microsecond less, because two clocks may be read within one.
create function skep.mark_time()
returns table (at timestamptz, mark bigint, running_from bigint)
language plpgsql as $$
begin
  at := skep.now() - interval '1 microsecond';
  mark := pg_current_xact_id()::text::bigint;
  running_from := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  return next;
end $$;
