/*
take_position: the present, as a position of readers.

Takes   p_queue_id: the queues that are read.
Returns one row. system: the installation, as system_identity names it. snapshot: the present one.
        newest: the newest transaction that left a segment in these queues, null when there is
        none. taken_us: now, in microseconds of the epoch.
Locks   none.
Why     The snapshot is that of this very statement, so it sees exactly the segments that newest
        was chosen from. Readers cut it there: see skep.spark.source.positions.
*/
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
