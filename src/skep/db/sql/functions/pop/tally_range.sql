-- tally_range: the deliveries and failures of the messages of a range.
-- Takes   p_cursor. The range is (p_from, p_to]. p_by: to be added to the deliveries.
-- Returns triples in one array: an offset, and the deliveries and failures of the messages up to it.
-- Locks   none.
-- Why     Pops ask only where the counts differ within the range.
create function skep.tally_range(
  p_cursor skep.cursor, p_from bigint, p_to bigint, p_by integer) returns bigint[]
language sql immutable as $$
  select array_agg(v.value order by e.at, v.place)
  from (
    select p_cursor.steps[i * 2 - 1] as at
    from generate_series(1, cardinality(p_cursor.steps) / 2) i
    union select p_cursor.delivered
    union select unnest(p_cursor.failed_offset)
    union select unnest(p_cursor.failed_offset) - 1
    union select p_to
  ) e
  cross join lateral (values
    (1, e.at),
    (2, skep.delivery_count(p_cursor.delivered, p_cursor.deliveries, p_cursor.steps, e.at) + p_by),
    (3, coalesce(p_cursor.failed_count[array_position(p_cursor.failed_offset, e.at)], 0))
  ) v(place, value)
  where e.at > p_from and e.at <= p_to;
$$;
