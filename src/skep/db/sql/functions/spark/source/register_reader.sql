-- register_reader: start reading under a name, or resume.
-- Takes   p_name; p_queues: names. p_position: where to start if it is new.
-- Returns the position to go on from.
-- Locks   the skep.reader row.
-- Why     Spark asks for the start twice, and again when it repeats the first micro-batch; the
--         answer must be the same until the first commit.
create function skep.register_reader(p_name text, p_queues text[], p_position json) returns json
language sql as $$
  insert into skep.reader as r (name, queues, position, updated_at)
  values (p_name, p_queues, p_position, skep.now())
  on conflict (name) do update set queues = excluded.queues, updated_at = excluded.updated_at
  returning r.position;
$$;
