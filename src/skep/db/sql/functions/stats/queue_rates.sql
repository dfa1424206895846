-- queue_rates: messages per second into and out of queues, lately.
-- Takes   p_seconds: how far to look back, to the start of a minute.
-- Returns queues with activity; out_per_second counts each delivery, of all groups.
-- Why     Listings show what flows without asking the log. The current minute counts as far as it
--         has passed, so that a new flow shows at once.
create function skep.queue_rates(p_queue_id integer[], p_seconds integer)
returns table (
  queue_id integer, in_per_second double precision, out_per_second double precision)
language sql stable as $$
  select m.queue_id, sum(m.push_messages) / max(s.seconds), sum(m.pop_messages) / max(s.seconds)
  from (
    select f.since, extract(epoch from skep.now() - f.since)::double precision as seconds
    from (
      select date_trunc('minute', skep.now() - make_interval(secs => p_seconds), 'UTC') as since
    ) f
  ) s
  cross join lateral (
    select q.queue_id, q.push_messages, q.pop_messages from skep.queue_minute q
    where q.queue_id = any(p_queue_id) and q.at >= s.since offset 0
  ) m
  group by m.queue_id;
$$;
