/*
now: the clock every decision about time reads, once per call.

Takes   nothing.
Returns the wall clock of the database server, or the session setting skep.fake_now when a test
        set it.
Locks   none.
Why     Leases, delays and windows must not depend on the clocks of brokers or clients, and tests
        must be able to let a lease expire without waiting.
*/
create function skep.now() returns timestamptz
language sql volatile parallel safe as $$
  select coalesce(
  nullif(current_setting('skep.fake_now', true), '')::timestamptz, clock_timestamp());
$$;
