-- fit_claims: how far into the last of some ranges a pop may reach with an answer of a size.
-- Takes   per range p_partition_id, and the messages (p_from, p_to], of which a conflating group
--         takes the last; p_bytes_max. p_is_whole: these are all ranges of the answer, and its
--         first segment is taken whatever its size.
-- Returns one row: the size of the segments that hold messages of the ranges, and the last message
--         that fits; p_from of the last range if none does. All before the last range must fit.
-- Locks   none.
-- Why     The size of a body is known without reading it where it lies out of line, and the walk
--         ends when the answer is full, however much is ready.
create function skep.fit_claims(
  p_partition_id bigint[], p_from bigint[], p_to bigint[], p_is_conflated boolean,
  p_bytes_max bigint, p_is_whole boolean)
returns table (bytes bigint, upto bigint)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_last constant integer := cardinality(p_partition_id);
  v_segment record;
begin
  bytes := 0;
  upto := p_from[v_last];
  for v_segment in
    select r.place, s.last, s.bytes
    from (
      select u.id, case when p_is_conflated then greatest(u.low, u.high - 1) else u.low end as low,
             u.high, u.place
      from unnest(p_partition_id, p_from, p_to) with ordinality u(id, low, high, place)
      where u.high > u.low
    ) r
    cross join lateral (
      select s.last, octet_length(s.body) as bytes from skep.segment s
      where s.partition_id = r.id and s.first <= r.high and s.last > r.low
        and s.first >= coalesce(
          (select b.first from skep.segment b
           where b.partition_id = r.id and b.first <= r.low + 1 order by b.first desc limit 1),
          r.low + 1)
      order by s.first
      offset 0
    ) s
  loop
    exit when bytes + v_segment.bytes > p_bytes_max and not (p_is_whole and bytes = 0);
    bytes := bytes + v_segment.bytes;
    if v_segment.place = v_last then
      upto := least(v_segment.last, p_to[v_last]);
    end if;
  end loop;
  return next;
end $$;
