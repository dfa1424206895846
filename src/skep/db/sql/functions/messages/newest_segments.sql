-- newest_segments: the segments that hold one page of a queue's messages, newest first.
-- Takes   p_limit, p_offset: messages.
-- Returns segments in order. rank: how many messages of the queue are newer than the segment's
--         newest.
-- Why     Newest means written by the latest transaction, which has an index. A segment holds at
--         least one message, so no more segments are read than messages are skipped or shown.
create function skep.newest_segments(p_queue_id integer, p_limit integer, p_offset integer)
returns table (partition_id bigint, first bigint, last bigint, rank bigint)
language sql stable as $$
  select r.partition_id, r.first, r.last, r.rank
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
  where r.rank < p_limit + p_offset and r.rank + r.count > p_offset
  order by r.rank;
$$;
