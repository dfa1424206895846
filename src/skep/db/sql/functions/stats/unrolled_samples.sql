-- unrolled_samples: the samples of the oldest past hour that is not rolled up.
-- Takes   p_settle_s: as roll_up_queues.
-- Returns by worker.
-- Why     Only the broker can merge samples; see record_worker_hour.
create function skep.unrolled_samples(p_settle_s integer)
returns table (hour timestamptz, worker_id integer, sample text)
language sql stable as $$
  select o.hour, m.worker_id, m.sample::text
  from (
    select date_trunc('hour', s.at, 'UTC') as hour
    from skep.worker_minute s
    where s.at >= coalesce((select max(h.at) from skep.worker_hour h) + interval '1 hour',
                           '-infinity')
      and s.at < date_trunc('hour', skep.now() - make_interval(secs => p_settle_s), 'UTC')
    order by s.at limit 1
  ) o
  join skep.worker_minute m on m.at >= o.hour and m.at < o.hour + interval '1 hour'
  order by m.worker_id, m.at;
$$;
