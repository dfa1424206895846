/*
place_hold: keep what a reader outside has not seen yet, or move its position forward.

Takes   p_queue: its name. p_name: the reader. p_position: a snapshot; whatever it sees, the
        reader has. Null stands for the present one. p_keep_s: for how long the hold counts unless
        it is placed again.
Returns one row: the position and updated_at; none when the queue does not exist.
Locks   skep.hold in row exclusive mode, which waits for a step of retention under way; then the
        row.
Why     From the moment this commits nothing above the position is deleted. A hold that was placed
        while retention was at work in the queue would else protect what is already gone.
*/
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
