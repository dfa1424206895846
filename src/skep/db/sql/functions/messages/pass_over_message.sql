-- pass_over_message: mark a message as done for groups that will not get it.
-- Takes   p_partition_id, p_group_id: the cursors; p_offset; p_now.
-- Locks   none; the caller holds the partition for no key update (so no push is in flight, and an
--         exhausted partition may become idle), then the cursors.
-- Why     The next message to deliver is always the one after acked: a cursor waiting for a missing
--         message would claim its partition in vain for ever. So acked moves past what became
--         contiguous. A lease with nothing left ends. A back-off goes on unless this was the failed
--         message. An auto-acked claim can still be undone (release_claims).
create function skep.pass_over_message(
  p_partition_id bigint, p_group_id integer[], p_offset bigint, p_now timestamptz) returns void
language sql as $$
  update skep.cursor c
  set acked = n.acked,
      done = nullif(n.done - int8multirange(int8range(null, n.acked, '(]')), '{}'),
      leased = case when n.acked < c.leased then c.leased end,
      leased_from = case when n.acked = c.acked or c.leased is null then c.leased_from end,
      deliveries = case when n.acked = c.acked then c.deliveries
                        when n.acked < c.leased then 1 else 0 end,
      unanswered = case when n.acked = c.acked then c.unanswered
                        when n.acked < c.leased then 1 else 0 end,
      nacked = case when n.acked < c.leased then c.nacked end,
      retry_at = case when n.acked < c.leased then c.retry_at end,
      available_at = case
        when n.acked < c.leased then c.available_at
        when n.acked >= p.head then null
        when c.leased is not null then p_now
        when exists (select from unnest(c.failed_offset) f(at)
                     where f.at > n.acked and f.at <> p_offset) then c.available_at
        else least(c.available_at, p_now) end,
      failed_offset = (select array_agg(f.at) from unnest(c.failed_offset) f(at)
                       where f.at > n.acked and f.at <> p_offset),
      failed_count = (select array_agg(f.count)
                      from unnest(c.failed_offset, c.failed_count) f(at, count)
                      where f.at > n.acked and f.at <> p_offset)
  from skep.partition p
  cross join lateral (
    select o.partition_id, o.group_id, d.done,
           coalesce(
             (select upper(r) - 1 from unnest(d.done) r where r @> o.acked + 1), o.acked) as acked
    from skep.cursor o
    cross join lateral (
      select coalesce(o.done, '{}') + int8multirange(int8range(p_offset, p_offset, '[]')) as done
    ) d
    where o.partition_id = p_partition_id and o.group_id = any(p_group_id) and o.acked < p_offset
  ) n
  where p.id = p_partition_id and c.partition_id = n.partition_id and c.group_id = n.group_id;
$$;
