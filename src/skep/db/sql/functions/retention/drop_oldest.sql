-- drop_oldest: delete the oldest messages of a queue until enough unread ones are gone.
-- Takes   p_count: unread messages to drop.
-- Returns one row: dropped (messages deleted), unread (those that some group had yet to read).
--         unread is less than p_count if the queue has no more, an external reader holds the rest,
--         the limit is reached, or another session was faster; dropped is 0 if nothing is left.
-- Locks   as held_from; then skep.partition rows for no key update, in id order.
-- Why     Whole segments go, in the order they entered the queue, so up to a segment more is
--         dropped; older messages that all groups have read go with them. What is kept of a
--         partition stays contiguous: a segment takes along an older one of a later transaction. An
--         emptied partition stays ready until a poll finds out. A thousand segments per call bound
--         how long pushes wait. What an external reader still needs is kept, with what follows it:
--         such a queue may exceed its limit until the hold moves or lapses.
create function skep.drop_oldest(p_queue_id integer, p_count bigint)
returns table (dropped bigint, unread bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_held_from constant xid8 := skep.held_from(p_queue_id);
  v_groups integer[];
  v_partition bigint[];
  v_upto bigint[];
begin
  select coalesce(array_agg(g.id), '{}') into v_groups
  from skep.consumer_group g where g.queue_id = p_queue_id and skep.counts_as_reader(g);

  select array_agg(l.partition_id), array_agg(coalesce(h.first - 1, l.upto))
  into v_partition, v_upto
  from (
    select o.partition_id, max(o.last) as upto
    from (
      select s.partition_id, s.last,
             sum(u.unread) over (order by s.xid, s.partition_id, s.first) - u.unread as before
      from (
        select s.partition_id, s.first, s.last, s.xid from skep.segment s
        where s.queue_id = p_queue_id and s.xid < v_held_from
        order by s.xid, s.partition_id, s.first limit 1000
      ) s
      cross join lateral (
        select greatest(0, s.last - greatest(s.first - 1, coalesce(min(c.acked), 0))) as unread
        from skep.cursor c where c.partition_id = s.partition_id and c.group_id = any(v_groups)
      ) u
    ) o
    where o.before < p_count
    group by o.partition_id
  ) l
  left join lateral (
    select min(s.first) as first from skep.segment s
    where s.partition_id = l.partition_id and s.first <= l.upto and s.xid >= v_held_from
  ) h on true;
  perform from skep.partition p where p.id = any(v_partition) order by p.id for no key update;

  with gone as (
    delete from skep.segment s
    using unnest(v_partition, v_upto) l(id, upto)
    where s.partition_id = l.id and s.first <= l.upto
    returning s.partition_id, s.first, s.last
  ),
  moved as (
    update skep.partition p set tail = l.upto + 1
    from unnest(v_partition, v_upto) l(id, upto)
    where p.id = l.id and p.tail <= l.upto
  ),
  forgotten as (
    delete from skep.deleted_message d
    using unnest(v_partition, v_upto) l(id, upto)
    where d.partition_id = l.id and d.message_offset <= l.upto
  )
  select coalesce(sum(g.last - g.first + 1), 0),
         coalesce(sum(greatest(0, g.last - greatest(g.first - 1, u.acked))), 0)
  into dropped, unread
  from gone g
  cross join lateral (
    select coalesce(min(c.acked), 0) as acked
    from skep.cursor c where c.partition_id = g.partition_id and c.group_id = any(v_groups)
  ) u;
  return next;
end $$;
