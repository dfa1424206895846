-- age_s: whole seconds since a moment.
-- Returns the seconds; 0 if p_moment is null or in the future.
-- Why     Lags are measured by the clock that stamped the messages, never by a broker's.
create function skep.age_s(p_moment timestamptz, p_now timestamptz) returns bigint
language sql immutable parallel safe as $$
  select coalesce(greatest(floor(extract(epoch from p_now - p_moment)), 0), 0)::bigint;
$$;
