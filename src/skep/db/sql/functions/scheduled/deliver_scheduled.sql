/*
deliver_scheduled: let the time of a scheduled message come now.

Takes   p_id.
Returns its new deliver_at, or null when it does not wait any more. A time that has passed stays.
Locks   the row of skep.scheduled.
Why     Only the time changes; it is sequenced like all others.
*/
create function skep.deliver_scheduled(p_id bigint) returns timestamptz
language sql as $$
  update skep.scheduled s set deliver_at = least(s.deliver_at, skep.now())
  where s.id = p_id
  returning s.deliver_at;
$$;
