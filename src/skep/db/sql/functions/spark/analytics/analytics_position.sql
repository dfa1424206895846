/*
analytics_position: from where in the log the messages of some hours are found.

Takes   p_since: the begin of the first hour.
Returns the newest position that was taken an hour before or earlier; null if there is none.
Locks   none.
Why     What a snapshot saw had been created before it was taken. So nothing of later hours is
        missed by a reader that begins there, and it need not go through the whole log. The hour
        between is for clocks that are set back.
*/
create function skep.analytics_position(p_since timestamptz) returns text
language sql stable as $$
  select r.position::text from skep.analytics_run r
  where r.taken_at <= p_since - interval '1 hour'
  order by r.taken_at desc, r.id desc
  limit 1;
$$;
