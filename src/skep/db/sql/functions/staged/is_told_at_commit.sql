/*
is_told_at_commit: whether a transaction that enqueues tells the brokers so when it commits.

Takes   nothing.
Returns true, unless the setting skep.stage_notify is off.
Locks   none.
Why     A notification at commit makes the difference between milliseconds and seconds of latency.
        But a transaction that notifies cannot be prepared for a two-phase commit, and the commits of
        those who notify pass one by one.
*/
create function skep.is_told_at_commit() returns boolean
language sql stable as $$
  select coalesce(nullif(current_setting('skep.stage_notify', true), '')::boolean, true);
$$;
