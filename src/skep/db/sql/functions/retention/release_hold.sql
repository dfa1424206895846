-- release_hold: let retention delete what an external reader was keeping.
-- Returns whether there was such a hold.
-- Locks   the skep.hold row.
-- Why     A finished reader must not cost disk until its hold lapses.
create function skep.release_hold(p_queue text, p_name text) returns boolean
language plpgsql as $$
begin
  delete from skep.hold h using skep.queue q
  where q.name = p_queue and h.queue_id = q.id and h.name = p_name;
  return found;
end $$;
