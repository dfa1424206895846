-- read_ranges: the segments of given ranges, without claiming anything.
-- Takes   p_limit: segments.
-- Returns item is the range, 1-based. Its first and last segment may hold messages beyond it.
-- Locks   none.
-- Why     One call reads many partitions with one new message each, or part of a long one.
create function skep.read_ranges(
  p_partition_id bigint[], p_first bigint[], p_last bigint[], p_limit integer)
returns table (item bigint, first bigint, last bigint, created_at timestamptz, body bytea)
language sql stable as $$
  select i.item, s.first, s.last, s.created_at, s.body
  from unnest(p_partition_id, p_first, p_last) with ordinality i(id, first, last, item)
  cross join lateral (
    select s.first, s.last, s.created_at, s.body
    from skep.segment s
    where s.partition_id = i.id
      and s.first <= i.last
      and s.first >= coalesce(
        (select b.first from skep.segment b
         where b.partition_id = i.id and b.first <= i.first
         order by b.first desc limit 1),
        i.first)
    order by s.first
    offset 0
  ) s
  where s.last >= i.first
  order by i.item, s.first
  limit p_limit;
$$;
