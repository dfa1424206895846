-- place_hold: keep what an external reader has not seen, or advance its position.
-- Takes   p_name: the reader. p_position: a snapshot; the reader has what it sees; null for the
--         current one. p_keep_s: how long the hold lasts unless renewed.
-- Returns one row; none if the queue does not exist.
-- Locks   skep.hold in row exclusive mode, which waits for a step of retention; then the row.
-- Why     Once this commits, nothing above the position is deleted. Without the wait, a hold could
--         protect what retention is already deleting.
create function skep.place_hold(
  p_queue text, p_name text, p_position pg_snapshot, p_keep_s integer)
returns table ("position" pg_snapshot, updated_at timestamptz)
language sql as $$
  insert into skep.hold as h (queue_id, name, position, keep_s, updated_at)
  select q.id, p_name, coalesce(p_position, pg_current_snapshot()), p_keep_s, skep.now()
  from skep.queue q where q.name = p_queue
  on conflict (queue_id, name) do update
  set position = excluded.position, keep_s = excluded.keep_s, updated_at = excluded.updated_at
  returning h.position, h.updated_at;
$$;
