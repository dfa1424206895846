-- pass_cursors: move cursors of a partition past messages that their groups will not get.
-- Takes   p_first, p_last: the messages; 1 for everything up to p_last.
-- Locks   the skep.partition row for share, skipping it if locked; the caller holds the cursors.
-- Why     For messages that retention, an operator or the queue's rules took away. The next message
--         to deliver is always the one after acked: a cursor waiting for a missing message would
--         claim its partition in vain for ever. So acked moves past what became contiguous, and a
--         cursor further ahead stays. A lease with nothing left ends, a longer one stays; acks find
--         their messages done. A back-off ends with the last failed message. A lease given back
--         later does not move the cursor back, but an auto-acked claim can still be undone
--         (release_claims): delivering twice beats losing.
create function skep.pass_cursors(
  p_partition_id bigint, p_group_id integer[], p_first bigint, p_last bigint, p_now timestamptz)
returns void
language sql as $$
  update skep.cursor c
  set acked = n.acked,
      done = n.done,
      leased = case when n.acked < c.leased then c.leased end,
      leased_from = case when c.leased is null or n.acked < c.leased then c.leased_from end,
      unanswered = case when n.acked = c.acked then c.unanswered
                        when n.acked < c.leased then 1 else 0 end,
      nacked = case when n.acked < c.leased then c.nacked end,
      retry_at = case when n.acked < c.leased then c.retry_at end,
      available_at = case
        when n.acked < c.leased then c.available_at
        when n.is_idle then null
        when c.leased is not null then p_now
        when n.failed_offset is not null then c.available_at
        else least(c.available_at, p_now) end,
      failed_offset = n.failed_offset,
      failed_count = n.failed_count
  from (
    select k.ctid as place, d.acked, d.done, f.failed_offset, f.failed_count, r.is_idle
    from skep.cursor k
    cross join lateral skep.pass_done(
      k.acked, coalesce(k.done, '{}') + int8multirange(int8range(p_first, p_last + 1))) d
    cross join lateral (
      select array_agg(u.at) as failed_offset, array_agg(u.count) as failed_count
      from unnest(k.failed_offset, k.failed_count) u(at, count)
      where u.at > d.acked and u.at not between p_first and p_last
    ) f
    -- Idle only while no push is in flight; see take_partitions.
    left join lateral (
      select true as is_idle from skep.partition p
      where p.id = p_partition_id and p.head <= d.acked for share skip locked
    ) r on true
    where k.partition_id = p_partition_id and k.group_id = any(p_group_id) and k.acked < p_last
  ) n
  where c.ctid = n.place;
$$;
