-- retry_pause: how long to back off after a failure.
-- Returns the interval: doubles with each failure up to the bound, never below p_delay_ms.
-- Locks   none.
-- Why     The shift is capped at 31 bits, so it cannot overflow however often a message fails.
create function skep.retry_pause(p_failures integer, p_delay_ms integer, p_delay_ms_max integer)
returns interval
language sql immutable as $$
  select greatest(
           p_delay_ms::bigint,
           least(p_delay_ms::bigint << least(greatest(p_failures, 1) - 1, 31), p_delay_ms_max)
         ) * interval '1 millisecond';
$$;
