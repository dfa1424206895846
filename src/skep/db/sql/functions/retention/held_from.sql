-- held_from: the transaction from which segments of a queue are kept for external readers.
-- Returns the lowest transaction that some active hold may not have seen, or that is not archived
--         although the queue demands it before deletion; the highest possible if none.
-- Locks   skep.hold in share mode: no hold can be placed that this did not see.
-- Why     A snapshot sees everything below its xmin; keeping all above costs little.
create function skep.held_from(p_queue_id integer) returns xid8
language plpgsql as $$
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
