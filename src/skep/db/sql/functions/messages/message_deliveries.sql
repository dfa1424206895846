-- message_deliveries: the progress of each group with one message.
-- Returns per group that counts (message_standing), by name: group_name; state (done, leased,
--         retrying or waiting); deliveries: null where they are not counted; failures; ahead:
--         messages the group must finish first; until: the end of the lease or back-off. No row for
--         an offset that never held a message.
-- Locks   none.
-- Why     Deliveries are counted for the first unfinished message of a group and forgotten with its
--         acknowledgement: the log keeps positions, not a history.
create function skep.message_deliveries(p_partition_id bigint, p_offset bigint)
returns table (
  group_name text, state text, deliveries integer, failures integer, ahead bigint,
  until timestamptz)
language sql stable as $$
  select g.name, s.state,
         case when s.state <> 'done' and c.acked + 1 = p_offset then c.deliveries end,
         case when s.state = 'done' then 0 else coalesce(f.failures, 0) end,
         case when s.state = 'done' then 0 else p_offset - c.acked - 1 end,
         case s.state when 'leased' then c.available_at
                      when 'retrying' then coalesce(c.retry_at, c.available_at) end
  from (select skep.now() as now) n
  cross join skep.cursor c
  join skep.consumer_group g on g.id = c.group_id
  join skep.partition p on p.id = c.partition_id and p.head >= p_offset
  left join lateral (
    select u.failures from unnest(c.failed_offset, c.failed_count) u(at, failures)
    where u.at = p_offset
  ) f on true
  cross join lateral (
    select case
      when p_offset <= c.acked or coalesce(c.done, '{}') @> p_offset then 'done'
      when coalesce(c.nacked, '{}') @> p_offset then 'retrying'
      when c.leased >= p_offset and c.available_at > n.now then 'leased'
      when f.failures > 0 and c.available_at > n.now then 'retrying'
      else 'waiting' end as state
  ) s
  where c.partition_id = p_partition_id
    and (g.name <> '__QUEUE_MODE__' or c.lease_id is not null or not exists (
      select from skep.consumer_group o where o.queue_id = c.queue_id and o.id <> g.id))
  order by g.name;
$$;
