-- worker_samples: what workers did between two moments.
-- Takes   p_from, p_to, p_is_hourly: as queue_activity. p_hostname, p_number: null for all.
-- Returns oldest first.
-- Why     The broker merges samples: it knows their content, and a day has some thousand.
create function skep.worker_samples(
  p_from timestamptz, p_to timestamptz, p_is_hourly boolean, p_hostname text, p_number integer,
  p_limit integer)
returns table (
  worker_id integer, hostname text, port integer, number integer, pid integer,
  seen_at timestamptz, at timestamptz, sample text)
language sql stable as $$
  select w.id, w.hostname, w.port, w.number, w.pid, w.seen_at, s.at, s.sample::text
  from (
    select m.* from skep.worker_minute m
    where m.at < p_to
      and m.at >= greatest(
        p_from,
        case when p_is_hourly
             then (select max(h.at) from skep.worker_hour h) + interval '1 hour' end)
    union all
    select h.* from skep.worker_hour h
    where p_is_hourly and h.at >= p_from and h.at < p_to
  ) s
  join skep.metric_worker w on w.id = s.worker_id
  where (p_hostname is null or w.hostname = p_hostname)
    and (p_number is null or w.number = p_number)
  order by s.at, w.id
  limit p_limit;
$$;
