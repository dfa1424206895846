-- measure_readers: how far Spark readers are behind, by queue.
-- Takes   p_name: null for all. p_limit.
-- Returns messages and seconds behind; is_active: the log is still kept for it.
-- Why     Counts what the reader's hold does not see. A running micro-batch counts as unread, so
--         the number is never too low.
create function skep.measure_readers(p_name text, p_limit integer)
returns table (
  queue text, name text, messages bigint, seconds bigint, updated_at timestamptz,
  is_active boolean)
language sql stable as $$
  select q.name, h.name, b.messages, skep.age_s(b.oldest, skep.now()), h.updated_at,
         h.updated_at > skep.now() - make_interval(secs => h.keep_s)
  from skep.hold h
  join skep.reader r on r.name = h.name
  join skep.queue q on q.id = h.queue_id
  cross join lateral (
    select coalesce(sum(s.last - s.first + 1), 0)::bigint as messages, min(s.created_at) as oldest
    from skep.segment s
    where s.queue_id = h.queue_id and s.xid >= pg_snapshot_xmin(h.position)
      and not pg_visible_in_snapshot(s.xid, h.position)
  ) b
  where p_name is null or h.name = p_name
  order by q.name, h.name
  limit p_limit;
$$;
