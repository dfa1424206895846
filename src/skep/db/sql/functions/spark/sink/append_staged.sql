-- append_staged: allocate offsets for staged segments and move them into the log.
-- Takes   the staging; p_partition_id: its partitions, ascending.
-- Returns how many messages were stored.
-- Locks   idle skep.cursor rows in (partition_id, group_id) order; the caller holds the partitions.
-- Why     As append_segments, for any number of segments per partition, by task and number. The
--         segments are already in the table, and an update does not rewrite out-of-line values: a
--         hundred megabytes move in milliseconds. Places and counts travel through the update's
--         returning list, and all look-ups go row by row through an index: other joins would read
--         the whole log.
create function skep.append_staged(
  p_write_id text, p_epoch bigint, p_attempt bigint[], p_partition_id bigint[], p_now timestamptz)
returns bigint
language plpgsql
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_count bigint;
begin
  with staged as materialized (
    select p.id, array_agg(b.place order by s.task, s.number) as places,
           array_agg(s.messages order by s.task, s.number) as counts,
           sum(s.messages)::bigint as messages
    from skep.staged_segment s
    cross join lateral (select q.id from skep.queue q where q.name = s.queue offset 0) q
    cross join lateral (
      select p.id from skep.partition p
      where p.queue_id = q.id and p.name = s.partition offset 0
    ) p
    cross join lateral (
      select b.ctid as place from skep.segment b
      where b.partition_id = -s.attempt and b.first = s.number offset 0
    ) b
    where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
    group by p.id
  ),
  allocated as (
    update skep.partition p
    set head = p.head + t.messages, pushed_at = greatest(p.pushed_at, p_now),
        wide_to = p.head + t.messages
    from staged t
    where p.id = any(array[t.id])
    returning p.id, p.queue_id, p.head - t.messages as base, p.pushed_at, t.places, t.counts
  ),
  placed as materialized (
    select a.id, a.queue_id, a.pushed_at, u.place, u.count,
           a.base + sum(u.count) over (partition by a.id order by u.turn) as last
    from allocated a
    cross join lateral unnest(a.places, a.counts) with ordinality u(place, count, turn)
  ),
  stored as (
    update skep.segment b
    set partition_id = l.id, first = l.last - l.count + 1, last = l.last, queue_id = l.queue_id,
        created_at = l.pushed_at, xid = pg_current_xact_id()
    from placed l
    where b.ctid = l.place
    returning l.count
  )
  select coalesce(sum(s.count), 0) into v_count from stored s;
  perform skep.wake_idle(p_partition_id, p_now);
  return v_count;
end $$;
