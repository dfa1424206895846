-- queue_rates: messages per second into and out of queues, lately, and by minute.
-- Takes   p_seconds: how far rates look back, to the start of a minute. p_minutes: how many whole
--         minutes to return one by one.
-- Returns a row per queue. out_per_second and popped count each delivery, of all groups. pushed and
--         popped: messages by minute, oldest first, zero where nothing happened.
-- Why     Listings show what flows without asking the log. The current minute counts as far as it
--         has passed, so that a new flow shows at once.
create function skep.queue_rates(p_queue_id integer[], p_seconds integer, p_minutes integer)
returns table (
  queue_id integer, in_per_second double precision, out_per_second double precision,
  pushed bigint[], popped bigint[])
language sql stable as $$
  select u.id, coalesce(r.pushed / r.seconds, 0), coalesce(r.popped / r.seconds, 0),
         coalesce(f.pushed, '{}'), coalesce(f.popped, '{}')
  from unnest(p_queue_id) u(id)
  left join (
    select m.queue_id, max(s.seconds) as seconds, sum(m.push_messages) as pushed,
           sum(m.pop_messages) as popped
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
    group by m.queue_id
  ) r on r.queue_id = u.id
  cross join lateral (
    select array_agg(coalesce(m.push_messages, 0) order by t.at) as pushed,
           array_agg(coalesce(m.pop_messages, 0) order by t.at) as popped
    from generate_series(1, p_minutes) n
    cross join lateral (
      select date_trunc('minute', skep.now(), 'UTC') - make_interval(mins => n) as at
    ) t
    left join skep.queue_minute m on m.queue_id = u.id and m.at = t.at
  ) f;
$$;
