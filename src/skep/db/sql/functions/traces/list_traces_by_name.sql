-- list_traces_by_name: traces of a name, oldest first, with their messages.
-- Returns by id; total is that of the name. queue_name, partition_name and envelope are null if the
--         queue or message is gone. A page beyond the end is one row with the total and no id; an
--         unknown name is no row.
-- Why     The page is cut in the name's index before anything else is read. A message shared by
--         several traces is read once.
create function skep.list_traces_by_name(p_name text, p_limit integer, p_skip bigint)
returns table (
  total bigint, id bigint, event_type text, data text, consumer_group text, worker_id text,
  created_at timestamptz, names text[], transaction_id text, partition_id bigint,
  queue_name text, partition_name text, envelope text)
language sql stable as $$
  with page as materialized (
    select t.*
    from (
      select n.trace_id from skep.trace_name n
      where n.name = p_name order by n.trace_id limit p_limit offset p_skip
    ) n
    cross join lateral (select t.* from skep.trace t where t.id = n.trace_id offset 0) t
  ), message as materialized (
    select m.partition_id, m.message_offset, p.name as partition_name, q.name as queue_name,
           skep.read_envelope(m.partition_id, m.message_offset) as envelope
    from (select distinct g.partition_id, g.message_offset from page g) m
    left join skep.partition p on p.id = m.partition_id
    left join skep.queue q on q.id = p.queue_id
  )
  select s.trace_count, g.id, g.event_type, g.data, g.consumer_group, g.worker_id, g.created_at,
         g.names, g.transaction_id, g.partition_id, m.queue_name, m.partition_name, m.envelope
  from skep.trace_name_total s
  left join page g on true
  left join message m
    on m.partition_id = g.partition_id and m.message_offset = g.message_offset
  where s.name = p_name
  order by g.id;
$$;
