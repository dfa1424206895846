-- scrape_metrics: what a scrape shows of the whole installation.
-- Takes   p_letters: dead letters counted per queue.
-- Returns one JSON object: totals (by counter, since installation), minute (age_s, and queues:
--         activity of the last full minute, busiest first), dead_letters (by queue).
-- Why     One bounded call per scrape.
create function skep.scrape_metrics(p_queues integer, p_letters integer) returns text
language sql stable as $$
  select jsonb_build_object(
    'totals', (select coalesce(jsonb_object_agg(t.name, t.value), '{}') from skep.metric_total t),
    'minute', (
      select jsonb_build_object(
        'age_s', extract(epoch from skep.now() - n.at),
        'queues', coalesce((
          select jsonb_agg(to_jsonb(m) || jsonb_build_object('queue', m.name))
          from (
            select q.name, m.*, coalesce((
              select sum(p.parked) from skep.parked_minute p
              where p.queue_id = m.queue_id and p.at = m.at), 0) as parked
            from skep.queue_minute m join skep.queue q on q.id = m.queue_id
            where m.at = n.at
            order by m.push_messages + m.pop_messages desc, m.queue_id limit p_queues
          ) m), '[]'))
      from (
        select date_trunc('minute', skep.now(), 'UTC') - interval '1 minute' as at
      ) n),
    'dead_letters', (
      select coalesce(jsonb_object_agg(d.name, d.letters), '{}')
      from (
        select q.name, d.letters
        from skep.queue q
        cross join lateral (
          select count(*) as letters from (
            select from skep.dead_letter d where d.queue_id = q.id limit p_letters
          ) d
        ) d
        where d.letters > 0
        order by d.letters desc, q.id limit p_queues
      ) d)
  )::text;
$$;
