/*
append_staged: allocate offsets for staged segments and store them in the log.

Takes   p_write_id, p_epoch, p_attempt: whose staging. p_lane_id, p_queue, p_partition: the
        partitions, as staged_lanes returns them. p_now: the moment of the push.
Returns how many messages were stored.
Locks   the partitions are locked by the caller; idle skep.cursor rows in (partition_id, group_id)
        order.
Why     As append_segments, for any number of segments per partition: in the order of the tasks, and
        inside of a task in the order in which it made them. The bytes go from table to table: in
        arrays they would have to fit into memory, and into a gigabyte.
*/
create function skep.append_staged(
  p_write_id text, p_epoch bigint, p_attempt text[],
  p_lane_id bigint[], p_queue text[], p_partition text[], p_now timestamptz) returns bigint
language plpgsql
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
  v_count bigint;
begin
  with staged as materialized (
    select l.id, s.ctid as place, s.messages,
           sum(s.messages) over (partition by l.id order by s.task, s.number) as upto
    from skep.staged_segment s
    join unnest(p_lane_id, p_queue, p_partition) l(id, queue, partition)
      on l.queue = s.queue and l.partition = s.partition
    where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
  ),
  allocated as (
    update skep.partition p
    set head = p.head + t.messages, pushed_at = greatest(p.pushed_at, p_now)
    from (select s.id, max(s.upto)::bigint as messages from staged s group by s.id) t
    where p.id = any(array[t.id])  -- an array leaves one way to join, as push_segments explains
    returning p.id, p.queue_id, p.head - t.messages as base, p.pushed_at
  ),
  stored as (
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select a.id, a.base + s.upto - s.messages + 1, a.base + s.upto, a.queue_id, a.pushed_at,
           b.keys, b.body
    from staged s
    join allocated a on a.id = s.id
    cross join lateral (
      select b.keys, b.body from skep.staged_segment b where b.ctid = s.place offset 0
    ) b
    returning last - first + 1 as messages
  )
  select coalesce(sum(s.messages), 0) into v_count from stored s;
  perform skep.wake_idle(p_lane_id, p_now);
  return v_count;
end $$;
