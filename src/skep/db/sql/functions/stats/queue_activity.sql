-- queue_activity: activity of queues between two moments, by minute or hour.
-- Takes   p_to is exclusive. p_is_hourly: by hour where rolled up, by minute since.
-- Returns rows of queue_minute.
-- Why     All charts read from here, so they agree on which rows count. One lower bound for
--         minutes, not two, or only half of it would serve the index search.
create function skep.queue_activity(p_from timestamptz, p_to timestamptz, p_is_hourly boolean)
returns setof skep.queue_minute
language sql stable as $$
  select m.* from skep.queue_minute m
  where m.at < p_to
    and m.at >= greatest(
      p_from,
      case when p_is_hourly
           then (select max(h.at) from skep.queue_hour h) + interval '1 hour' end)
  union all
  select h.* from skep.queue_hour h
  where p_is_hourly and h.at >= p_from and h.at < p_to;
$$;
