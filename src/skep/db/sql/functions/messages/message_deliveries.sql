-- message_deliveries: the progress of each group with one message.
-- Takes   p_now: null for the clock.
-- Returns per group that counts (counts_as_reader), by name: state as delivery_state; deliveries:
--         null when it is done; ahead: messages the group must finish first; until: the end of the
--         lease or back-off. No row for an offset that never held a message.
-- Why     Deliveries are counted for unfinished messages and forgotten with their acknowledgement:
--         the log keeps positions, not a history.
create function skep.message_deliveries(
  p_partition_id bigint, p_offset bigint, p_now timestamptz default null)
returns table (
  group_name text, state text, deliveries integer, failures integer, ahead bigint,
  until timestamptz)
language sql stable as $$
  select g.name, s.state,
         case when s.state <> 'done'
           then skep.delivery_count(c.delivered, c.deliveries, c.steps, p_offset) end,
         case when s.state = 'done' then 0
              else coalesce(c.failed_count[array_position(c.failed_offset, p_offset)], 0) end,
         case when s.state = 'done' then 0 else p_offset - c.acked - 1 end,
         case s.state when 'leased' then c.available_at
                      when 'retrying' then coalesce(c.retry_at, c.available_at) end
  from (select coalesce(p_now, skep.now()) as now) n
  cross join skep.cursor c
  join skep.consumer_group g on g.id = c.group_id
  join skep.partition p on p.id = c.partition_id and p.head >= p_offset
  cross join lateral (
    select skep.delivery_state(
      p_offset, c.acked, c.done, c.leased, c.nacked, c.available_at, c.failed_offset, n.now)
      as state
  ) s
  where c.partition_id = p_partition_id and skep.counts_as_reader(g)
  order by g.name;
$$;
