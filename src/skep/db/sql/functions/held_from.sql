/*
held_from: the transaction from which on the segments of a queue are kept for readers outside.

Takes   p_queue_id.
Returns the least transaction that some active hold has not seen for certain; the greatest there
        can be when nothing is held.
Locks   skep.hold in share mode, until commit: nobody can place a hold that this did not see.
Why     A snapshot sees everything below its xmin. What lies above it may be seen or not; keeping
        all of it costs little and needs no list.
*/
create function skep.held_from(p_queue_id integer) returns xid8
language plpgsql as $$
#variable_conflict use_column
begin
  lock table skep.hold in share mode;
  return coalesce(
    (select min(pg_snapshot_xmin(h.position)::text::numeric)::text::xid8 from skep.hold h
     where h.queue_id = p_queue_id
       and h.updated_at > skep.now() - make_interval(secs => h.keep_s)),
    '18446744073709551615'::xid8);
end $$;
