-- read_segments: the messages of some segments, to search them.
-- Takes   p_partition_id, p_first: the segments.
-- Returns a row for each that still exists.
-- Locks   none.
-- Why     Conditions on payloads are checked by the broker: it can decrypt, and functions of JSON in
--         SQL fail on some valid payloads.
create function skep.read_segments(p_partition_id bigint[], p_first bigint[])
returns table (partition_id bigint, first bigint, body bytea)
language sql stable as $$
  select s.partition_id, s.first, s.body
  from unnest(p_partition_id, p_first) u(partition_id, first)
  cross join lateral (
    select s.partition_id, s.first, s.body from skep.segment s
    where s.partition_id = u.partition_id and s.first = u.first offset 0
  ) s;
$$;
