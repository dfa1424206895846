/*
offset_before: the last offset of a partition that was pushed before a moment.

Takes   p_partition_id, p_moment.
Returns the offset; the one before the first kept message when all are younger.
Locks   none.
Why     created_at never decreases along a partition, so the newest segment before the moment
        ends there; the walk goes backwards because subscriptions and seeks aim at recent times.
*/
create function skep.offset_before(p_partition_id bigint, p_moment timestamptz) returns bigint
language sql stable as $$
  select coalesce(
  (select s.last from skep.segment s
   where s.partition_id = p_partition_id and s.created_at < p_moment
   order by s.first desc limit 1),
  (select p.tail - 1 from skep.partition p where p.id = p_partition_id));
$$;
