/*
plan_tail: which messages of a queue appeared between two snapshots.

Takes   p_queue_id; p_after, p_until: snapshots as text, p_until null for the present; p_since: only
        segments created then or later.
Returns per partition with something new, ascending: until (the later snapshot), partition_id,
        partition_name, first and last offset. Without anything new one row with until alone; no
        row when the queue does not exist (any more).
Locks   none.
Why     A position in all partitions of a queue at once is one snapshot, however many partitions there are.
        What a snapshot shows of a partition is a prefix of it, because offset order is commit order;
        so what is new in a partition is one range, and reading it in offset order keeps the partition's
        order. Order by transaction id would not: a transaction may get its id early and its place
        in a partition late. The index is walked from the oldest transaction that was running at p_after.
*/
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
