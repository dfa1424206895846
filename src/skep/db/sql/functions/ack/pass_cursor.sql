-- pass_cursor: move one cursor past messages that its group will not get.
-- Takes   p_partition_id, p_group_id: the cursor. p_last: the last of those messages.
-- Locks   none; the caller holds the cursor.
-- Why     A cursor that is further ahead stays. A lease that ends within the range ends now, a
--         longer one stays; acks find their messages done. Finished messages right behind the range
--         are passed as well: done never contains acked + 1. A lease given back later does not move
--         the cursor back, but an auto-acked claim can still be undone: delivering twice beats
--         losing. The back-off of a failed message in the range ends.
create function skep.pass_cursor(p_partition_id bigint, p_group_id integer, p_last bigint)
returns void
language sql as $$
  update skep.cursor c
  set acked = a.acked,
      leased_from = case when c.leased is null then c.leased_from end,
      leased = case when c.leased > a.acked then c.leased end,
      available_at = case
        when c.leased <= a.acked then skep.now()
        when c.leased is null and c.failed_offset is not null
             and a.acked >= all(c.failed_offset) then least(c.available_at, skep.now())
        else c.available_at end,
      deliveries = case when c.leased > a.acked then 1 else 0 end,
      unanswered = case when c.leased > a.acked then 1 else 0 end,
      nacked = case when c.leased > a.acked then c.nacked end,
      retry_at = case when c.leased > a.acked then c.retry_at end,
      done = nullif(c.done * int8multirange(int8range(a.acked + 1, null)), '{}'),
      failed_offset = (select array_agg(u.at) from unnest(c.failed_offset) u(at)
                       where u.at > a.acked),
      failed_count = (select array_agg(u.count)
                      from unnest(c.failed_offset, c.failed_count) u(at, count)
                      where u.at > a.acked)
  from (
    select coalesce((select upper(r) - 1 from unnest(k.done) r where r @> p_last + 1), p_last)
             as acked
    from skep.cursor k
    where k.partition_id = p_partition_id and k.group_id = p_group_id offset 0
  ) a
  where c.partition_id = p_partition_id and c.group_id = p_group_id and c.acked < p_last;
$$;
