/*
count_offsets: how many offsets a set of ranges holds.

Takes   p_ranges.
Returns the number of offsets.
Locks   none.
Why     Apart from partition_backlog because that must stay one expression, see there.
*/
create function skep.count_offsets(p_ranges int8multirange) returns bigint
language sql immutable parallel safe as $$
  select coalesce(sum(upper(r) - lower(r)), 0)::bigint from unnest(p_ranges) r;
$$;
