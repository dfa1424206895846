-- partition_backlog: the messages of a partition that a group has yet to finish.
-- Takes   a p_head smaller than the partition's counts up to there.
-- Returns the number, leased messages included.
-- Why     Offsets are dense, so a backlog is a difference. Messages above the cursor that need no
--         delivery are subtracted; if retention passed the cursor, the tail counts. One expression
--         without a subquery, which PostgreSQL inlines: listings ask for ten thousand partitions.
create function skep.partition_backlog(
  p_head bigint, p_tail bigint, p_acked bigint, p_done int8multirange) returns bigint
language sql immutable parallel safe as $$
  select greatest(p_head - greatest(p_acked, p_tail - 1), 0)
       - case when p_done is null then 0
              else skep.count_offsets(p_done * int8multirange(int8range(
                     greatest(p_acked + 1, p_tail), greatest(p_acked + 1, p_tail, p_head + 1))))
         end;
$$;
