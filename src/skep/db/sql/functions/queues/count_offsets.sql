-- count_offsets: the number of offsets in a set of ranges.
-- Returns the number.
-- Why     Separate because partition_backlog must stay one expression without a subquery.
create function skep.count_offsets(p_ranges int8multirange) returns bigint
language sql immutable parallel safe as $$
  select coalesce(sum(upper(r) - lower(r)), 0)::bigint from unnest(p_ranges) r;
$$;
