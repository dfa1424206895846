-- is_told_at_commit: whether a transaction that enqueues notifies the brokers on commit.
-- Returns true unless the setting skep.stage_notify is off.
-- Why     A notification cuts the latency from seconds to milliseconds. But a transaction that
--         notifies cannot be prepared for two-phase commit, and commits that notify are serialised.
create function skep.is_told_at_commit() returns boolean
language sql stable as $$
  select coalesce(nullif(current_setting('skep.stage_notify', true), '')::boolean, true);
$$;
