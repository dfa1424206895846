-- read_rules: what a broker must know about queues to push into them.
-- Returns per queue that exists.
-- Locks   none.
-- Why     Read when a broker first uses a queue, and again when check_rules refuses its version.
create function skep.read_rules(p_queue_id integer[])
returns table (
  queue_id integer, version integer, dedup_window_s integer, encryption_enabled boolean,
  max_size integer, overflow text, json_schema text, deferral text)
language sql stable as $$
  select q.id, q.version, q.dedup_window_s, q.encryption_enabled, q.max_size, q.overflow,
         q.json_schema::text, q.deferral
  from skep.queue q where q.id = any(p_queue_id);
$$;
