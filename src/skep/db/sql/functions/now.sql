-- now: the clock for every decision about time, read once per call.
-- Returns the server's wall clock, or the session setting skep.fake_now if a test set it.
-- Why     Leases, delays and windows must not depend on the clocks of brokers or clients, and tests
--         must be able to expire a lease without waiting.
create function skep.now() returns timestamptz
language sql volatile parallel safe as $$
  select coalesce(
  nullif(current_setting('skep.fake_now', true), '')::timestamptz, clock_timestamp());
$$;
