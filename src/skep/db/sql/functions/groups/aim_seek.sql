-- aim_seek: where a seek would put a group's cursors, and what it would skip or replay.
-- Takes   p_to: end; start; timestamp (the first message stored at p_moment or later); offset (the
--         message at p_offset); subscription (where the group would start if it subscribed again).
-- Returns per cursor: acked (now), target (acked after the seek), skipped (unread messages it would
--         pass), replayed (finished messages it would deliver again).
-- Why     Preview and seek share these rules. A target outside the partition becomes its nearest
--         end. For the laterals see push_segments.
create function skep.aim_seek(
  p_group_id integer, p_partition_id bigint[], p_to text, p_moment timestamptz, p_offset bigint)
returns table (
  partition_id bigint, acked bigint, target bigint, skipped bigint, replayed bigint)
language sql stable as $$
  select c.partition_id, greatest(c.acked, p.tail - 1), t.target, s.skipped,
         (p.head - t.target - d.deleted)
         - skep.partition_backlog(p.head, p.tail, c.acked, c.done) + s.skipped
  from (
    select case when p_to <> 'subscription' then p_to
                when g.subscription_mode = 'all' then 'start'
                else 'timestamp' end as aim,
           case when p_to <> 'subscription' then p_moment
                else coalesce(g.subscribed_from, g.created_at) end as moment
    from skep.consumer_group g where g.id = p_group_id
  ) g
  cross join unnest(p_partition_id) i(id)
  cross join lateral (
    select p.head, p.tail from skep.partition p where p.id = i.id offset 0
  ) p
  cross join lateral (
    select c.partition_id, c.acked, c.done from skep.cursor c
    where c.partition_id = i.id and c.group_id = p_group_id offset 0
  ) c
  cross join lateral (
    select greatest(p.tail - 1, least(p.head, case g.aim
      when 'end' then p.head
      when 'start' then p.tail - 1
      when 'timestamp' then skep.offset_before(i.id, g.moment)
      when 'offset' then p_offset - 1
    end)) as target
    offset 0
  ) t
  cross join lateral (
    select skep.partition_backlog(t.target, p.tail, c.acked, c.done) as skipped
  ) s
  cross join lateral (
    select count(*) as deleted from skep.deleted_message d
    where d.partition_id = i.id and d.message_offset > t.target and d.message_offset <= p.head
  ) d;
$$;
