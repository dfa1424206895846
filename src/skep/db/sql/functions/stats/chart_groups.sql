-- chart_groups: lag of consumer groups over time.
-- Takes   p_to is exclusive. p_queue, p_group: null for all. p_limit: rows.
-- Returns newest first: the start of a bucket and its maxima, in messages and seconds.
-- Why     In a chart of lag the worst value of a bucket matters.
create function skep.chart_groups(
  p_from timestamptz, p_to timestamptz, p_bucket_s integer, p_queue text, p_group text,
  p_limit integer)
returns table (
  bucket timestamptz, queue text, group_name text, backlog bigint, lag_s bigint)
language sql stable as $$
  select date_bin(make_interval(secs => p_bucket_s), m.at, 'epoch'), q.name, g.name,
         max(m.backlog), max(m.lag_s)
  from skep.group_minute m
  join skep.consumer_group g on g.id = m.group_id
  join skep.queue q on q.id = g.queue_id
  where m.at >= p_from and m.at < p_to
    and (p_queue is null or q.name = p_queue)
    and (p_group is null or g.name = p_group)
  group by 1, 2, 3
  order by 1 desc, 2, 3
  limit p_limit;
$$;
