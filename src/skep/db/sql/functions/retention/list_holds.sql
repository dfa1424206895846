-- list_holds: holds on all queues, by queue and name.
-- Returns by queue and name; is_active: it still counts.
-- Why     The first place to look when the disk fills. Readers are few, so the count is cheap.
create function skep.list_holds(p_limit integer, p_offset integer)
returns table (
  queue text, name text, "position" text, keep_s integer, updated_at timestamptz,
  is_active boolean, total bigint)
language sql stable as $$
  select q.name, h.name, h.position::text, h.keep_s, h.updated_at,
         h.updated_at > skep.now() - make_interval(secs => h.keep_s), count(*) over ()
  from skep.hold h join skep.queue q on q.id = h.queue_id
  order by q.name, h.name
  limit p_limit offset p_offset;
$$;
