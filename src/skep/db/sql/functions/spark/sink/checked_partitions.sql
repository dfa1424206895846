/*
checked_partitions: up to where partitions have been compared with staged keys, and whether that still holds.

Takes   p_partition_id, p_queue, p_partition, p_window_s: partitions, as staged_partitions returns them. p_checked:
        what a driver says of partitions, an array of {queue, partition, id, head, since, oldest}: it has
        compared everything between the moment `since` and the offset `head`, and the lowest offset
        at which it found a key is `oldest`. id is null for a partition that did not exist. p_now.
Returns one row per partition with a window: id, queue, partition, is_checked; upto: what is stored up to
        this offset need not be compared any more; head.
Locks   none; the caller holds the partitions, so nothing can be added meanwhile.
Why     The driver looked without locks. That nothing equal was stored stays true of what it has
        seen; what was stored since is compared in addition. That something equal was stored holds
        as long as the partition is the same and keeps it, inside the window; else, or when the window
        has become longer, the partition counts as not compared at all.
*/
create function skep.checked_partitions(
  p_partition_id bigint[], p_queue text[], p_partition text[], p_window_s integer[], p_checked json,
  p_now timestamptz)
returns table (
  id bigint, queue text, partition text, is_checked boolean, upto bigint, head bigint)
language sql stable
set enable_hashjoin = on
set enable_nestloop = off
as $$
  select l.id, l.queue, l.partition, t.is_checked,
         greatest(w.upto, case when t.is_checked then c.head end), p.head
  from unnest(p_partition_id, p_queue, p_partition, p_window_s) l(id, queue, partition, window_s)
  left join json_to_recordset(p_checked)
              c(queue text, partition text, id bigint, head bigint, since timestamptz, oldest bigint)
    on c.queue = l.queue and c.partition = l.partition
    and (c.id is null or c.id = l.id) and c.since <= p_now - make_interval(secs => l.window_s)
  cross join lateral (select p.head from skep.partition p where p.id = l.id offset 0) p
  cross join lateral (
    select case when c.head = p.head and c.oldest is null then 0
                else skep.offset_before(
                  l.id, p_now - make_interval(secs => l.window_s) + interval '1 microsecond')
           end as upto
    offset 0
  ) w
  cross join lateral (
    select c.head is not null and coalesce(c.oldest > w.upto, true) as is_checked offset 0
  ) t
  where l.window_s > 0;
$$;
