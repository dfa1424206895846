-- list_trace_names: names of traces, last seen first.
-- Returns total is that of all names. A page beyond the end is one row with no name.
-- Why     Applications derive names from order numbers, so there may be millions: beyond 100,000
--         the total comes from the last analyze.
create function skep.list_trace_names(p_limit integer, p_skip bigint)
returns table (
  total bigint, is_estimate boolean, name text, trace_count bigint, message_count bigint,
  last_seen timestamptz)
language sql stable as $$
  select case when c.counted > 100000 then greatest(c.counted, c.estimated) else c.counted end,
         c.counted > 100000, g.name, g.trace_count, g.message_count, g.last_seen
  from (
    select (select count(*) from (select from skep.trace_name_total limit 100001) t) as counted,
           (select r.reltuples::bigint from pg_class r
            where r.oid = 'skep.trace_name_total'::regclass) as estimated
  ) c
  left join (
    select t.name, t.trace_count, t.message_count, t.last_seen from skep.trace_name_total t
    order by t.last_seen desc, t.name
    limit p_limit offset p_skip
  ) g on true
  order by g.last_seen desc, g.name;
$$;
