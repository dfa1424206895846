-- newest_segments: the segments that hold one page of a queue's messages, newest first.
-- Takes   p_queue_id; p_limit, p_offset: messages.
-- Returns segments in order: partition_id, partition_name, first, created_at, body; rank: how many
--         messages of the queue are newer than the segment's newest; tail, acked, leased, done as
--         partition_counts; buried: offsets of the segment that are dead letters.
-- Locks   none.
-- Why     Newest means written by the latest transaction, which has an index. A segment holds at
--         least one message, so no more segments are read than messages are skipped or shown, and
--         bodies only of those shown.
create function skep.newest_segments(p_queue_id integer, p_limit integer, p_offset integer)
returns table (
  partition_id bigint, partition_name text, first bigint, created_at timestamptz, body bytea,
  rank bigint, tail bigint, acked bigint, leased bigint, done int8multirange, buried bigint[])
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_partition bigint[];
  v_first bigint[];
  v_last bigint[];
  v_rank bigint[];
begin
  select array_agg(r.partition_id), array_agg(r.first), array_agg(r.last), array_agg(r.rank)
  into v_partition, v_first, v_last, v_rank
  from (
    select n.partition_id, n.first, n.last, n.count,
           sum(n.count) over (order by n.xid desc, n.partition_id desc, n.first desc)
             - n.count as rank
    from (
      select s.partition_id, s.first, s.last, s.xid, s.last - s.first + 1 as count
      from skep.segment s
      where s.queue_id = p_queue_id
      order by s.xid desc, s.partition_id desc, s.first desc
      limit p_limit + p_offset
    ) n
  ) r
  where r.rank < p_limit + p_offset and r.rank + r.count > p_offset;

  return query
  select s.partition_id, l.name, s.first, s.created_at, s.body, u.rank, l.tail, l.acked, l.leased,
         l.done, d.buried
  from unnest(v_partition, v_first, v_last, v_rank) u(partition_id, first, last, rank)
  join skep.segment s on s.partition_id = u.partition_id and s.first = u.first
  join skep.partition_counts(array(select distinct p.id from unnest(v_partition) p(id))) l
    on l.id = u.partition_id
  cross join lateral (
    select coalesce(array_agg(d.message_offset), '{}') as buried from skep.dead_letter d
    where d.partition_id = u.partition_id and d.message_offset between u.first and u.last
  ) d
  order by u.rank;
end $$;
