/*
held_from: the transaction from which on the segments of a queue are kept for readers outside.

Takes   p_queue_id.
Returns the least transaction that some active hold has not seen for certain, or that is not in the
        lake although the queue wants it there before it goes; the greatest there can be when
        nothing is held.
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
    (select min(h.xid::text::numeric)::text::xid8
     from (
       select pg_snapshot_xmin(h.position) as xid from skep.hold h
       where h.queue_id = p_queue_id
         and h.updated_at > skep.now() - make_interval(secs => h.keep_s)
       union all
       select case when a.system = skep.system_identity() then a.upto else '1' end
       from skep.queue q left join skep.archive a on a.queue_id = q.id
       where q.id = p_queue_id and q.archive_before_delete and q.archive_after_s > 0
     ) h),
    '18446744073709551615'::xid8);
end $$;
