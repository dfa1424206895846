-- purge_traces: delete old traces and update the totals of their names.
-- Returns how many were deleted; fewer than p_limit: there are no more.
-- Locks   skep.trace rows for update, in id order; then skep.trace_name_total rows for update, in
--         name order.
-- Why     Small steps keep the locks of popular names short. Totals are corrected in the same
--         transaction: a message leaves the count of a name with its last trace, and a name
--         disappears with its last message.
create function skep.purge_traces(p_before timestamptz, p_limit integer) returns integer
language plpgsql as $$
declare
  v_trace_id bigint[] := array(
    select t.id from skep.trace t
    where t.created_at < p_before order by t.created_at limit p_limit);
  v_name text[];
begin
  select array_agg(t.id), array(
           select distinct n from skep.trace u cross join unnest(u.names) n
           where u.id = any(array_agg(t.id)))
  into v_trace_id, v_name
  from (
    select t.id from skep.trace t where t.id = any(v_trace_id) order by t.id for update
  ) t;
  if v_trace_id is null then
    return 0;
  end if;

  perform 1
  from (select n from unnest(v_name) n order by n) o
  cross join lateral (
    select 1 from skep.trace_name_total t where t.name = o.n for update
  ) t;

  with gone as (
    delete from skep.trace_name n where n.name = any(v_name) and n.trace_id = any(v_trace_id)
    returning n.name, n.partition_id, n.message_offset
  ), per_message as (
    select g.name, count(*) as trace_count,
           -- This statement still sees the deleted rows: are there more than those?
           (select count(*) from skep.trace_name n
            where n.name = g.name and n.partition_id = g.partition_id
              and n.message_offset = g.message_offset) = count(*) as is_last
    from gone g group by g.name, g.partition_id, g.message_offset
  ), per_name as (
    select m.name, sum(m.trace_count) as trace_count,
           count(*) filter (where m.is_last) as message_count
    from per_message m group by m.name
  )
  update skep.trace_name_total t
  set trace_count = t.trace_count - p.trace_count,
      message_count = t.message_count - p.message_count
  from per_name p where t.name = p.name;

  delete from skep.trace_name_total t where t.name = any(v_name) and t.trace_count <= 0;
  delete from skep.trace t where t.id = any(v_trace_id);
  return cardinality(v_trace_id);
end $$;
