-- purge_traces: delete old traces, a bounded number at a time.
-- Takes   p_before: older ones go. p_limit.
-- Returns how many were deleted; fewer than p_limit: there are no more.
-- Locks   as delete_traces.
-- Why     Small steps keep the locks of popular names short.
create function skep.purge_traces(p_before timestamptz, p_limit integer) returns integer
language sql as $$
  select skep.delete_traces(array(
    select t.id from skep.trace t
    where t.created_at < p_before
    order by t.created_at
    limit p_limit));
$$;
