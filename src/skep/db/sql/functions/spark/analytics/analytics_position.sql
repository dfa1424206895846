-- analytics_position: where in the log to start reading the messages of some hours.
-- Takes   p_since: the start of the first hour.
-- Returns the newest position taken an hour or more before; null if there is none.
-- Why     What a snapshot saw was created before it was taken, so a reader that starts there misses
--         nothing of later hours and need not read the whole log. The hour allows for clocks that
--         are set back.
create function skep.analytics_position(p_since timestamptz) returns text
language sql stable as $$
  select r.position::text from skep.analytics_run r
  where r.taken_at <= p_since - interval '1 hour'
  order by r.taken_at desc, r.id desc
  limit 1;
$$;
