/*
chart_groups: how far consumer groups were behind, by time.

Takes   p_from, p_to: from the first up to before the second. p_bucket_s: the length of a bucket.
        p_queue, p_group: only these; null for all. p_limit: how many rows.
Returns bucket (its begin), queue and group_name, and the most that the group was behind in the
        bucket: backlog in messages, lag_s in seconds; newest first.
Locks   none.
Why     The worst of a bucket is what one looks for in a chart of lag.
*/
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
