-- deliver_scheduled: make a scheduled message due now.
-- Returns its new deliver_at (a past time stays); null if it no longer waits.
-- Locks   the skep.scheduled row.
-- Why     Only the time changes; it is sequenced like all others.
create function skep.deliver_scheduled(p_id bigint) returns timestamptz
language sql as $$
  update skep.scheduled s set deliver_at = least(s.deliver_at, skep.now())
  where s.id = p_id
  returning s.deliver_at;
$$;
