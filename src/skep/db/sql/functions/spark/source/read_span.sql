-- read_span: the contents of a span, for a Spark task.
-- Takes   the span as segments_in_span, of any number of queues.
-- Returns per segment, unordered.
-- Model   Positions!Stage
-- Why     Inlined like segments_in_span, so that rows stream as they are found. Outer joins: names
--         that are not selected are not looked up.
create function skep.read_span(
  p_queue_id integer[], p_partition_id bigint[], p_seen pg_snapshot, p_upto pg_snapshot,
  p_after bigint[], p_through bigint[], p_since timestamptz, p_until timestamptz)
returns table (
  xid xid8, partition_id bigint, first bigint, last bigint, queue text, partition text,
  created_at timestamptz, body bytea)
language sql stable as $$
  select s.xid, s.partition_id, s.first, s.last, q.name, p.name, s.created_at, s.body
  from unnest(p_queue_id) i(id)
  cross join lateral skep.segments_in_span(
    i.id, p_partition_id, p_seen, p_upto, p_after, p_through, p_since, p_until) s
  left join skep.partition p on p.id = s.partition_id
  left join skep.queue q on q.id = s.queue_id;
$$;
