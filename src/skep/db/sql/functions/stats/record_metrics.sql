-- record_metrics: add what a worker did since its last report.
-- Takes   p_sample: what the worker did in the minute p_at so far. p_queues: an array of objects,
--         one per used queue: its name as `queue`, and what to add to each column of queue_minute.
--         p_parked: an object of waiting polls by queue.
-- Returns the database's time, null if the worker is unknown.
-- Locks   its own skep.metric_worker, skep.worker_minute and skep.parked_minute rows;
--         skep.queue_minute rows in ascending queue; then skep.metric_total rows in ascending name.
-- Why     One call for everything, a few times a minute: the cost follows the queues in use. A
--         queue deleted meanwhile is left out.
create function skep.record_metrics(
  p_worker_id integer, p_at timestamptz, p_sample jsonb, p_queues jsonb, p_parked jsonb)
returns timestamptz
language plpgsql as $$
begin
  update skep.metric_worker w set seen_at = skep.now() where w.id = p_worker_id;
  if not found then
    return null;
  end if;

  insert into skep.worker_minute (worker_id, at, sample)
  values (p_worker_id, p_at, p_sample)
  on conflict (worker_id, at) do update set sample = excluded.sample;

  insert into skep.parked_minute as m (queue_id, at, worker_id, parked)
  select q.id, p_at, p_worker_id, p.value::integer
  from jsonb_each_text(p_parked) p join skep.queue q on q.name = p.key
  on conflict (queue_id, at, worker_id) do update set parked = greatest(m.parked, excluded.parked);

  insert into skep.queue_minute as m
  select u.*
  from jsonb_array_elements(p_queues) n(used)
  join skep.queue q on q.name = n.used ->> 'queue'
  cross join lateral jsonb_populate_record(
    null::skep.queue_minute, n.used || jsonb_build_object('queue_id', q.id, 'at', p_at)) u
  order by q.id
  on conflict (queue_id, at) do update
  set push_requests = m.push_requests + excluded.push_requests,
      push_messages = m.push_messages + excluded.push_messages,
      push_bytes = m.push_bytes + excluded.push_bytes,
      push_duplicates = m.push_duplicates + excluded.push_duplicates,
      pop_requests = m.pop_requests + excluded.pop_requests,
      pop_messages = m.pop_messages + excluded.pop_messages,
      pop_bytes = m.pop_bytes + excluded.pop_bytes,
      pop_empty = m.pop_empty + excluded.pop_empty,
      redelivered = m.redelivered + excluded.redelivered,
      ack_requests = m.ack_requests + excluded.ack_requests,
      ack_success = m.ack_success + excluded.ack_success,
      ack_failed = m.ack_failed + excluded.ack_failed,
      dead_letters = m.dead_letters + excluded.dead_letters,
      transactions = m.transactions + excluded.transactions,
      partitions_created = m.partitions_created + excluded.partitions_created,
      lag_ms_sum = m.lag_ms_sum + excluded.lag_ms_sum,
      lag_ms_max = greatest(m.lag_ms_max, excluded.lag_ms_max),
      lag_counts = skep.add_counts(m.lag_counts, excluded.lag_counts);

  insert into skep.metric_total as t (name, value)
  select c.name, sum(c.value::bigint)
  from jsonb_array_elements(p_queues) u(used)
  cross join lateral jsonb_each_text(u.used) c(name, value)
  where c.name not in ('queue', 'lag_counts', 'lag_ms_max')
  group by c.name
  order by c.name
  on conflict (name) do update set value = t.value + excluded.value;
  return skep.now();
end $$;
