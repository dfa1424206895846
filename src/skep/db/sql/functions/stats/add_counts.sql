/*
add_counts: add two histograms, bound by bound.

Takes   p_left, p_right: counts. Either may be shorter, or null.
Returns their sum, as long as the longer one; an empty array when both are null.
Locks   none.
Why     Histograms of different moments add up, unlike averages; PostgreSQL does not add arrays.
*/
create function skep.add_counts(p_left bigint[], p_right bigint[]) returns bigint[]
language sql immutable as $$
  select coalesce(array_agg(coalesce(u.l, 0) + coalesce(u.r, 0) order by u.place), '{}')
  from unnest(p_left, p_right) with ordinality u(l, r, place);
$$;
