/*
offsets_in: the offsets of a set that lie in a range.

Takes   p_set; p_after, p_to: the range (p_after, p_to].
Returns them in ascending order; null when there are none.
Locks   none.
Why     A set of ranges is how the database keeps done offsets; a list is what a reader of a batch
        needs, and within a batch it is short.
*/
create function skep.offsets_in(p_set int8multirange, p_after bigint, p_to bigint)
returns bigint[]
language sql immutable as $$
  select array_agg(n order by n)
  from unnest(p_set * int8multirange(int8range(p_after + 1, p_to + 1))) r
  cross join lateral generate_series(lower(r), upper(r) - 1) n;
$$;
