/*
stored_at: when the message at an offset was stored.

Takes   p_partition_id, p_offset.
Returns created_at of the segment that holds the offset; null when no segment begins there or
        before.
Locks   none.
Why     The age of the first unread message is the time lag of a partition: one look-up in the index
        of segments, whatever the partition holds.
*/
create function skep.stored_at(p_partition_id bigint, p_offset bigint) returns timestamptz
language sql stable as $$
  select s.created_at from skep.segment s
  where s.partition_id = p_partition_id and s.first <= p_offset
  order by s.first desc limit 1;
$$;
