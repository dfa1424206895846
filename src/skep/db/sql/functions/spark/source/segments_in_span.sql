-- segments_in_span: the segments of a queue between two positions.
-- Takes   p_queue_id; p_partition_id: null for all. p_seen, p_upto: what p_upto sees and p_seen
--         does not. p_after, p_through: addresses (xid, partition, first), the first exclusive;
--         null for no bound. p_since, p_until: created between, the second exclusive; null for no
--         bound.
-- Returns the segments, unordered.
-- Why     The one definition of a span, for planning and reading. Inlined, so that callers read by
--         the index (queue_id, xid) and only the columns they name. One queue, because only then
--         the index gives them in order.
create function skep.segments_in_span(
  p_queue_id integer, p_partition_id bigint[], p_seen pg_snapshot, p_upto pg_snapshot,
  p_after bigint[], p_through bigint[], p_since timestamptz, p_until timestamptz)
returns setof skep.segment
language sql stable as $$
  select s.* from skep.segment s
  where s.queue_id = p_queue_id
    and s.xid >= pg_snapshot_xmin(p_seen)
    and s.xid < pg_snapshot_xmax(p_upto)
    and (p_after is null or s.xid >= (p_after[1]::text)::xid8)
    and (p_through is null or s.xid <= (p_through[1]::text)::xid8)
    and not pg_visible_in_snapshot(s.xid, p_seen)
    and pg_visible_in_snapshot(s.xid, p_upto)
    and (p_after is null
         or array[s.xid::text::bigint, s.partition_id, s.first] > p_after)
    and (p_through is null
         or array[s.xid::text::bigint, s.partition_id, s.first] <= p_through)
    and (p_partition_id is null or s.partition_id = any(p_partition_id))
    and (p_since is null or s.created_at >= p_since)
    and (p_until is null or s.created_at < p_until);
$$;
