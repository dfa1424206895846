-- take_position: the present as a reader's position.
-- Takes   p_queue_id: the queues read.
-- Returns one row. newest: the newest transaction with a segment in these queues, or null.
--         taken_us: now, in microseconds since the epoch.
-- Model   Positions!Position
-- Why     The snapshot is this statement's, so it sees exactly the segments that newest was chosen
--         from. Readers cut it there: see skep.spark.source.positions.
create function skep.take_position(p_queue_id integer[])
returns table (system text, snapshot text, newest bigint, taken_us bigint)
language sql stable as $$
  select skep.system_identity(),
         pg_current_snapshot()::text,
         (select max(n.xid::text::bigint)
          from unnest(p_queue_id) i(id)
          cross join lateral (
            select s.xid from skep.segment s where s.queue_id = i.id order by s.xid desc limit 1
          ) n),
         (extract(epoch from skep.now()) * 1000000)::bigint;
$$;
