-- snapshot_before: what a reader of messages from some time on need not look at.
-- Returns the newest snapshot that sees no message created at that time or later; null if none
--         was taken.
-- Why     A message is created before its transaction ends, so one that had ended by then holds
--         older messages only. The hour is for a clock that was set back: created_at never
--         decreases along a partition, and may be ahead of the clock for that long.
create function skep.snapshot_before(p_at timestamptz) returns text
language sql stable as $$
  select p.snapshot::text from skep.past_snapshot p
  where p.taken_at <= p_at - interval '1 hour' and p.system = skep.system_identity()
  order by p.taken_at desc limit 1;
$$;
