/*
partition_counts: how many messages some partitions hold, and how many of them are still to be done.

Takes   p_partition_id: partitions, in any order.
Returns one row per existing partition: its id, queue_id, name, head, tail, created_at, pushed_at (null
        before the first push); total (kept and not deleted), pending (not acknowledged yet, under
        lease or not), processing (under a live lease), failed (failed and to be delivered again),
        acked and leased (the offsets behind these figures; leased is null without a live lease)
        and done (offsets above acked that need no delivery).
Locks   none.
Why     This is the one place that says whose progress decides what is pending: queue mode's where
        it has ever claimed something of the partition or is alone; elsewhere that of the slowest named
        group. Queue mode exists on every queue, and counting it where only named groups consume
        would show everything as pending for ever.
*/
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
    -- Of the cursors of a partition the first in this order decides.
    select distinct on (u.id) u.id, c.acked, c.leased, c.available_at, c.done, c.failed_offset
    from unnest(p_partition_id) u(id)
    left join (
      -- Cursors of a group that was removed stay until they are swept, and mean nothing.
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
