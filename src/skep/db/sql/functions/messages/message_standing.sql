-- message_standing: the state of a run of messages across the groups of their queue.
-- Returns per offset: status (pending, processing, completed or dead_letter), queue_status (the
--         same for the default group alone, null where it does not count), consumed_by and
--         total_groups (named groups), lease_until (of the lease that ends last).
-- Why     The one definition of the state of a message. A dead letter of any group decides.
--         Otherwise a message is completed when every group that counts (counts_as_reader) is done
--         with it (delivery_state), processing while one of them leases it, else pending.
create function skep.message_standing(
  p_partition_id bigint, p_first bigint, p_last bigint, p_now timestamptz)
returns table (
  message_offset bigint, status text, queue_status text, consumed_by integer,
  total_groups integer, lease_until timestamptz)
language sql stable as $$
  with reader as materialized (
    select c.acked, c.done, c.leased, c.nacked, c.available_at,
           g.name = '__QUEUE_MODE__' as is_queue_mode
    from skep.cursor c
    join skep.consumer_group g on g.id = c.group_id
    where c.partition_id = p_partition_id and skep.counts_as_reader(g)
  ),
  dead as materialized (
    select distinct d.message_offset from skep.dead_letter d
    where d.partition_id = p_partition_id and d.message_offset between p_first and p_last
  )
  select o.at,
         case when x.message_offset is not null then 'dead_letter'
              when r.is_done then 'completed'
              when r.lease_until is not null then 'processing'
              else 'pending' end,
         r.queue_status, r.consumed_by, r.total_groups, r.lease_until
  from generate_series(p_first, p_last) o(at)
  left join dead x on x.message_offset = o.at
  cross join lateral (
    select coalesce(bool_and(s.state = 'done'), false) as is_done,
           max(case when not r.is_queue_mode then null
                    when s.state = 'done' then 'completed'
                    when s.state = 'leased' then 'processing' else 'pending' end) as queue_status,
           (count(*) filter (where s.state = 'done' and not r.is_queue_mode))::integer
             as consumed_by,
           (count(*) filter (where not r.is_queue_mode))::integer as total_groups,
           max(r.available_at) filter (where s.state = 'leased') as lease_until
    from reader r
    cross join lateral (
      select skep.delivery_state(
        o.at, r.acked, r.done, r.leased, r.nacked, r.available_at, null, p_now) as state
      offset 0
    ) s
  ) r;
$$;
