-- chart_parked: waiting polls over time, by queue and worker.
-- Takes   p_to is exclusive. p_queue: null for all. p_limit: rows.
-- Returns newest first: the start of a bucket and its maximum.
-- Why     Shows whether consumers are spread over the workers.
create function skep.chart_parked(
  p_from timestamptz, p_to timestamptz, p_bucket_s integer, p_queue text, p_limit integer)
returns table (bucket timestamptz, queue text, hostname text, number integer, parked integer)
language sql stable as $$
  select date_bin(make_interval(secs => p_bucket_s), m.at, 'epoch'), q.name, w.hostname, w.number,
         max(m.parked)
  from skep.parked_minute m
  join skep.queue q on q.id = m.queue_id
  join skep.metric_worker w on w.id = m.worker_id
  where m.at >= p_from and m.at < p_to and (p_queue is null or q.name = p_queue)
  group by 1, 2, 3, 4
  order by 1 desc, 2, 3, 4
  limit p_limit;
$$;
