-- add_counts: add two histograms.
-- Takes   either may be shorter or null.
-- Returns their sum, as long as the longer one; empty if both are null.
-- Why     Histograms add up, unlike averages; PostgreSQL cannot add arrays.
create function skep.add_counts(p_left bigint[], p_right bigint[]) returns bigint[]
language sql immutable as $$
  select coalesce(array_agg(coalesce(u.l, 0) + coalesce(u.r, 0) order by u.place), '{}')
  from unnest(p_left, p_right) with ordinality u(l, r, place);
$$;
