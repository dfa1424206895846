-- offsets_in: list the offsets of a set that lie in a range.
-- Returns the offsets in (p_after, p_to], ascending; null if there are none.
-- Locks   none.
-- Why     Cursors store done offsets as ranges; the reader of a batch needs a list, which is short.
--         A function, so that take_partitions pays only where there are any.
create function skep.offsets_in(p_set int8multirange, p_after bigint, p_to bigint)
returns bigint[]
language sql immutable as $$
  select array_agg(n order by n)
  from unnest(p_set * int8multirange(int8range(p_after + 1, p_to + 1))) r
  cross join lateral generate_series(lower(r), upper(r) - 1) n;
$$;
