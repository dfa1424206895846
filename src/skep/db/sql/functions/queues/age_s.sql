/*
age_s: whole seconds since a moment.

Takes   p_moment, p_now.
Returns the seconds; 0 when there is no moment or it is still to come.
Locks   none.
Why     Lags are told by the clock that stamped the messages, never by a broker's.
*/
create function skep.age_s(p_moment timestamptz, p_now timestamptz) returns bigint
language sql immutable parallel safe as $$
  select coalesce(greatest(floor(extract(epoch from p_now - p_moment)), 0), 0)::bigint;
$$;
