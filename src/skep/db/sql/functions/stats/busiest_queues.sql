-- busiest_queues: the queues to show in a chart over all of them.
-- Takes   as queue_activity.
-- Returns most messages pushed, delivered and acknowledged first.
-- Why     A chart has room for a few of thousands of queues.
create function skep.busiest_queues(
  p_from timestamptz, p_to timestamptz, p_is_hourly boolean, p_limit integer)
returns table (id integer, name text)
language sql stable as $$
  select q.id, q.name
  from (
    select a.queue_id, sum(a.push_messages + a.pop_messages + a.ack_success) as messages
    from skep.queue_activity(p_from, p_to, p_is_hourly) a
    group by a.queue_id
  ) a
  join skep.queue q on q.id = a.queue_id
  order by a.messages desc, q.id
  limit p_limit;
$$;
