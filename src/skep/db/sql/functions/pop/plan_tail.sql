-- plan_tail: the messages of a queue that appeared between two snapshots.
-- Takes   p_after, p_until: snapshots as text, p_until null for now; p_since: not older segments.
-- Returns per partition with new messages, ascending: until (the later snapshot), first and last
--         offset. Without new messages one row with only until; no row if the queue does not exist.
-- Locks   none.
-- Why     One snapshot is a position in all partitions of a queue. A snapshot shows a prefix of
--         each partition, because offset order is commit order; so what is new in a partition is
--         one range. Transaction ids would not keep a partition's order: a transaction may get its
--         id early and its offsets late. The index is walked from the oldest transaction that was
--         running at p_after.
create function skep.plan_tail(
  p_queue_id integer, p_after text, p_until text, p_since timestamptz)
returns table (
  until text, partition_id bigint, partition_name text, first bigint, last bigint)
language sql stable as $$
  select b.until::text, t.partition_id, p.name, t.first, t.last
  from (
    select coalesce(p_until::pg_snapshot, pg_current_snapshot()) as until
    from skep.queue q where q.id = p_queue_id
  ) b
  left join lateral (
    select s.partition_id, min(s.first) as first, max(s.last) as last
    from skep.segment s
    where s.queue_id = p_queue_id
      and s.xid >= pg_snapshot_xmin(p_after::pg_snapshot)
      and not pg_visible_in_snapshot(s.xid, p_after::pg_snapshot)
      and pg_visible_in_snapshot(s.xid, b.until)
      and s.created_at >= p_since
    group by s.partition_id
  ) t on true
  left join skep.partition p on p.id = t.partition_id
  order by t.partition_id;
$$;
