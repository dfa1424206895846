/*
queue_activity: what happened in queues between two moments, by minute or as coarse as it is kept.

Takes   p_from, p_to: from the first up to before the second. p_is_hourly: by hour where that has
        been rolled up, and by minute since.
Returns rows of queue_minute.
Locks   none.
Why     Every chart reads from here, so that all of them agree on which rows count. Where minutes
        begin is one bound and not two, or the index would be searched with half of it.
*/
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
