/*
retry_pause: how long a message that failed is left alone.

Takes   p_failures: how often it failed, 1 or more; p_delay_ms: the pause after the first failure;
        p_delay_ms_max: the bound of what grows.
Returns the pause: it doubles with each failure up to the bound, and is never below the first.
Locks   none.
Why     Doubling gives what is broken time to mend. A shift of a bigint by at most 31 bits cannot
        overflow from an integer, however often something failed.
*/
create function skep.retry_pause(p_failures integer, p_delay_ms integer, p_delay_ms_max integer)
returns interval
language sql immutable as $$
  select greatest(
           p_delay_ms::bigint,
           least(p_delay_ms::bigint << least(greatest(p_failures, 1) - 1, 31), p_delay_ms_max)
         ) * interval '1 millisecond';
$$;
