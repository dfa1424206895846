-- delete_segments: delete the oldest segments of partitions, as far as allowed.
-- Takes   p_partition_id: ascending, no id twice. p_first: the newest segment to delete in each.
--         p_cutoff, p_held_from: only what was created before and written below. p_completed_only:
--         only what every group has finished; nothing if there is none.
-- Returns one row.
-- Locks   as lock_partitions; then the skep.cursor rows that lag, for no key update, in
--         (partition_id, group_id) order; then as pass_cursors.
-- Why     A partition loses whole segments from its oldest end: offsets stay dense from tail to
--         head. created_at never decreases along a partition, and whatever protects a segment
--         protects those after it. Cursors are moved although readers check the tail: a claim reads
--         the tail in one statement and the segments in the next, holding its cursor. Waiting for
--         the cursor and moving it keeps claims from leasing deleted messages. For the laterals see
--         push_segments.
create function skep.delete_segments(
  p_partition_id bigint[], p_first bigint[], p_cutoff timestamptz, p_held_from xid8,
  p_completed_only boolean)
returns table (messages bigint, segments bigint, partitions bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_id bigint[];
  v_tail bigint[];
  v_last bigint[];                      -- the last offset to go, in each partition
begin
  perform skep.lock_partitions(p_partition_id);
  select array_agg(l.id order by l.id), array_agg(l.tail order by l.id),
         array_agg(l.last order by l.id)
  into v_id, v_tail, v_last
  from (
    select i.id, p.tail, e.last
    from unnest(p_partition_id, p_first) i(id, first)
    cross join lateral (
      select p.tail, p.queue_id from skep.partition p where p.id = i.id offset 0
    ) p
    cross join lateral (
      select case when p_completed_only then skep.completed_to(i.id, p.queue_id) end as last
    ) c
    left join lateral (
      select s.first from skep.segment s
      where s.partition_id = i.id and s.first <= i.first
        and (s.created_at >= p_cutoff or s.xid >= p_held_from or s.last > c.last)
      order by s.first limit 1
    ) b on true
    cross join lateral (
      select s.last from skep.segment s
      where s.partition_id = i.id and s.first <= i.first
        and s.first < coalesce(b.first, i.first + 1)
      order by s.first desc limit 1
    ) e
  ) l;
  if v_id is null then
    return query select 0::bigint, 0::bigint, 0::bigint;
    return;
  end if;

  -- Most cursors are far ahead; only those that lag are written.
  perform skep.pass_cursors(i.id, array[k.group_id], 1, i.last, skep.now())
  from unnest(v_id, v_last) i(id, last)
  cross join lateral (
    select k.group_id from skep.cursor k
    where k.partition_id = i.id and k.acked < i.last order by k.group_id for no key update
  ) k;

  return query
  with doomed as (
    delete from skep.segment s
    using unnest(v_id, v_tail, v_last) i(id, tail, last)
    where s.partition_id = any(array[i.id]) and s.first <= i.last
    returning s.last - greatest(s.first, i.tail) + 1 as messages
  ),
  forgotten as (
    delete from skep.deleted_message d
    using unnest(v_id, v_tail, v_last) i(id, tail, last)
    where d.partition_id = any(array[i.id]) and d.message_offset <= i.last
    returning (d.message_offset >= i.tail)::integer as messages
  ),
  moved as (
    update skep.partition p set tail = greatest(p.tail, i.last + 1)
    from unnest(v_id, v_last) i(id, last)
    where p.id = any(array[i.id])
    returning 1
  )
  select (coalesce((select sum(d.messages) from doomed d), 0)
          - coalesce((select sum(f.messages) from forgotten f), 0))::bigint,
         (select count(*) from doomed), (select count(*) from moved);
end $$;
