-- partition_counts: how many messages partitions hold, and how many are unfinished.
-- Takes   p_partition_id: in any order.
-- Returns per existing partition: id, queue_id, name, head, tail, created_at, pushed_at (null
--         before the first push); total (kept, not deleted), pending (not acknowledged, leased or
--         not), processing (leased now), failed (to be delivered again), acked and leased (the
--         offsets behind these numbers; leased is null without a live lease), done (offsets above
--         acked that need no delivery).
-- Locks   none.
-- Why     The one definition of whose progress decides: the default group's where it ever claimed
--         something of the partition or is alone; otherwise that of the slowest named group. The
--         default group exists on every queue, and would show everything as pending where only
--         named groups consume.
create function skep.partition_counts(p_partition_id bigint[])
returns table (
  id bigint, queue_id integer, name text, head bigint, tail bigint, created_at timestamptz,
  pushed_at timestamptz, total bigint, pending bigint, processing bigint, failed bigint,
  acked bigint, leased bigint, done int8multirange)
language sql stable as $$
  select p.id, p.queue_id, p.name, p.head, p.tail, p.created_at, nullif(p.pushed_at, '-infinity'),
         p.head - p.tail + 1 - (
           select count(*) from skep.deleted_message d
           where d.partition_id = p.id and d.message_offset >= p.tail),
         p.head - a.acked - case when c.done is null then 0 else (
           select coalesce(sum(upper(r) - lower(r)), 0)::bigint
           from unnest(c.done * int8multirange(int8range(a.acked + 1, null))) r) end,
         greatest(l.leased - a.acked, 0),
         coalesce(cardinality(c.failed_offset), 0)::bigint,
         a.acked, l.leased, c.done
  from (
    -- The first cursor in this order decides.
    select distinct on (u.id) u.id, c.acked, c.leased, c.available_at, c.done, c.failed_offset
    from unnest(p_partition_id) u(id)
    left join (
      -- Cursors of a removed group stay until they are swept, and do not count.
      skep.cursor c join skep.consumer_group g on g.id = c.group_id
    ) on c.partition_id = u.id
    order by u.id,
             (g.name = '__QUEUE_MODE__' and (c.acked > 0 or c.lease_id is not null)) desc,
             g.name = '__QUEUE_MODE__',
             c.acked
  ) c
  join skep.partition p on p.id = c.id
  cross join lateral (
    select greatest(coalesce(c.acked, 0), p.tail - 1) as acked
  ) a
  cross join lateral (
    select case when c.available_at > skep.now() then c.leased end as leased
  ) l
$$;
