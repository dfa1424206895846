-- recent_letters: the newest dead letters, by queue and group.
-- Takes   p_letters: how many to look at. p_seconds: no older than that.
-- Returns most first: how many, since when, the newest, and the most frequent error line.
-- Why     What died lately is news; what died long ago has been seen.
create function skep.recent_letters(p_letters integer, p_seconds integer)
returns table (
  queue_name text, group_name text, letters bigint, since timestamptz, last_at timestamptz,
  error text)
language sql stable as $$
  select q.name, g.name, count(*), min(d.failed_at), max(d.failed_at),
         mode() within group (order by skep.error_line(d.error))
  from (
    select n.queue_id, n.group_id, n.failed_at, n.error from skep.dead_letter n
    where n.failed_at > skep.now() - make_interval(secs => p_seconds)
    order by n.failed_at desc, n.id desc limit p_letters
  ) d
  join skep.queue q on q.id = d.queue_id
  left join skep.consumer_group g on g.id = d.group_id
  group by q.name, g.name
  order by 3 desc, 1, 2;
$$;
