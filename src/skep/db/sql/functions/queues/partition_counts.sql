-- partition_counts: how many messages partitions hold, and how many are unfinished.
-- Returns per existing partition: pushed_at (null before the first push), total (kept, not
--         deleted), pending (not finished by every group, leased or not), processing (leased now by
--         some group, unanswered), failed (to be delivered again), acked (the offset behind
--         pending).
-- Why     The slowest group decides, of those that count as counts_as_reader says: the default
--         group, if it was never polled, is last in the order and so decides only where it is
--         alone. A message that several groups lease is counted once.
create function skep.partition_counts(p_partition_id bigint[])
returns table (
  id bigint, queue_id integer, name text, head bigint, tail bigint, created_at timestamptz,
  pushed_at timestamptz, total bigint, pending bigint, processing bigint, failed bigint,
  acked bigint)
language sql stable as $$
  select p.id, p.queue_id, p.name, p.head, p.tail, p.created_at, nullif(p.pushed_at, '-infinity'),
         p.head - p.tail + 1 - (
           select count(*) from skep.deleted_message d
           where d.partition_id = p.id and d.message_offset >= p.tail),
         skep.partition_backlog(p.head, p.tail, a.acked, c.done),
         case when c.leased is null then 0
              else skep.count_offsets(c.leased * int8multirange(int8range(p.tail, null))) end,
         coalesce(cardinality(c.failed_offset), 0)::bigint, a.acked
  from (
    -- The first cursor in this order decides.
    select distinct on (u.id) u.id, c.acked, c.done, c.failed_offset,
           range_agg(r.run) over (partition by u.id) as leased
    from unnest(p_partition_id) u(id)
    left join (
      -- Cursors of a removed group stay until they are swept, and do not count.
      skep.cursor c join skep.consumer_group g on g.id = c.group_id
    ) on c.partition_id = u.id
    left join lateral unnest(
      case when c.leased > c.acked and c.available_at > skep.now()
           then int8multirange(int8range(c.acked + 1, c.leased + 1))
                - coalesce(c.done, '{}') - coalesce(c.nacked, '{}') end) r(run) on true
    order by u.id, g.name = '__QUEUE_MODE__' and g.first_polled_at is null, c.acked
  ) c
  join skep.partition p on p.id = c.id
  cross join lateral (
    select greatest(coalesce(c.acked, 0), p.tail - 1) as acked
  ) a;
$$;
