-- checked_partitions: up to where a driver's comparison of staged keys still holds.
-- Takes   partitions as staged_partitions returns them. p_checked: an array of {queue, partition,
--         id, head, since, oldest} from the driver: it compared everything from the moment `since`
--         up to the offset `head`, and `oldest` is the lowest offset with an equal key. id is null
--         if the partition did not exist.
-- Returns per partition with a window; upto: messages up to this offset need no comparison.
-- Locks   none; the caller holds the partitions.
-- Why     The driver looked without locks. That no equal key was stored stays true for what it saw;
--         newer messages are compared in addition. That an equal key was stored holds while the
--         partition keeps it inside the window; otherwise, or if the window grew, the partition
--         counts as not compared.
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
              c(queue text, partition text, id bigint, head bigint, since timestamptz,
                oldest bigint)
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
