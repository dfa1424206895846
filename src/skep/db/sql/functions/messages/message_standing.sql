-- message_standing: the state of a run of messages across the groups of their queue.
-- Takes   p_partition_id, p_first, p_last: the run; p_now.
-- Returns per offset: status (pending, processing, completed or dead_letter), queue_status (the
--         same for the default group alone, null where it is unused), consumed_by and total_groups
--         (named groups), lease_until (of the lease that ends last).
-- Locks   none.
-- Why     A dead letter of any group decides. Otherwise a message is completed when every group
--         that counts has finished it, and processing while one of them leases it. The default
--         group always has a cursor; it counts if it ever claimed something here, or if it is the
--         only group.
create function skep.message_standing(
  p_partition_id bigint, p_first bigint, p_last bigint, p_now timestamptz)
returns table (
  message_offset bigint, status text, queue_status text, consumed_by integer,
  total_groups integer, lease_until timestamptz)
language sql stable as $$
  with reader as materialized (
    select c.acked, coalesce(c.done, '{}') as done, c.available_at as lease_until,
           case when c.leased is not null and c.available_at > p_now then c.leased else 0 end
             as leased,
           g.name = '__QUEUE_MODE__' as is_queue_mode
    from skep.cursor c
    join skep.consumer_group g on g.id = c.group_id
    where c.partition_id = p_partition_id
      and (g.name <> '__QUEUE_MODE__' or c.lease_id is not null or not exists (
        select from skep.consumer_group n where n.queue_id = c.queue_id and n.id <> g.id))
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
    select coalesce(bool_and(s.is_done), false) as is_done,
           max(case when not r.is_queue_mode then null
                    when s.is_done then 'completed'
                    when s.is_leased then 'processing' else 'pending' end) as queue_status,
           (count(*) filter (where s.is_done and not r.is_queue_mode))::integer as consumed_by,
           (count(*) filter (where not r.is_queue_mode))::integer as total_groups,
           max(r.lease_until) filter (where s.is_leased) as lease_until
    from reader r
    cross join lateral (select o.at <= r.acked or r.done @> o.at as is_done) d
    cross join lateral (select d.is_done, not d.is_done and o.at <= r.leased as is_leased) s
  ) r;
$$;
