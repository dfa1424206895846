/*
register_reader: begin to read under a name, or learn how far the reader of that name has come.

Takes   p_name; p_queues: names of the queues it reads. p_position: where it would begin.
Returns the position to go on from: that of the reader if it is known, else the one given.
Locks   the skep.reader row.
Why     Spark asks for the start twice, and again when the first micro-batch has to be repeated.
        Whatever happened in between, the answer must be the same until the first commit.
*/
create function skep.register_reader(p_name text, p_queues text[], p_position json) returns json
language sql as $$
  insert into skep.reader as r (name, queues, position, updated_at)
  values (p_name, p_queues, p_position, skep.now())
  on conflict (name) do update set queues = excluded.queues, updated_at = excluded.updated_at
  returning r.position;
$$;
