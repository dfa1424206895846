/*
busiest_queues: the queues that a chart is about.

Takes   p_from, p_to, p_is_hourly: as queue_activity. p_queue, p_namespace, p_task: only those;
        null for all. p_limit.
Returns id and name, those with most messages pushed, delivered and acknowledged first.
Locks   none.
Why     A chart has room for some queues, and thousands may have been used.
*/
create function skep.busiest_queues(
  p_from timestamptz, p_to timestamptz, p_is_hourly boolean, p_queue text, p_namespace text,
  p_task text, p_limit integer)
returns table (id integer, name text)
language sql stable as $$
  select q.id, q.name
  from skep.queue q
  join (
    select a.queue_id, sum(a.push_messages + a.pop_messages + a.ack_success) as messages
    from skep.queue_activity(p_from, p_to, p_is_hourly) a
    group by a.queue_id
  ) a on a.queue_id = q.id
  where (p_queue is null or q.name = p_queue)
    and (p_namespace is null or q.namespace = p_namespace)
    and (p_task is null or q.task = p_task)
  order by a.messages desc, q.id
  limit p_limit;
$$;
