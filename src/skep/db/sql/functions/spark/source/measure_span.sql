-- measure_span: how much there is in a span, for display.
-- Takes   the span as segments_in_span, of any number of queues. p_segments: how many to look at.
-- Returns one row. seconds: the age of the oldest. is_exact: there was no more to look at.
-- Why     Called with each micro-batch, so it must not depend on the backlog: of a long one it says
--         what there is at least.
create function skep.measure_span(
  p_queue_id integer[], p_partition_id bigint[], p_seen pg_snapshot, p_upto pg_snapshot,
  p_after bigint[], p_through bigint[], p_since timestamptz, p_until timestamptz,
  p_segments integer)
returns table (messages bigint, seconds bigint, is_exact boolean)
language sql stable as $$
  select coalesce(sum(f.messages), 0)::bigint,
         coalesce(skep.age_s(min(f.created_at), skep.now()), 0), count(*) < p_segments
  from (
    select s.last - s.first + 1 as messages, s.created_at
    from unnest(p_queue_id) i(id)
    cross join lateral skep.segments_in_span(
      i.id, p_partition_id, p_seen, p_upto, p_after, p_through, p_since, p_until) s
    limit p_segments
  ) f;
$$;
