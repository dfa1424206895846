-- take_position: the present as a reader's position.
-- Takes   p_queue_id: the queues read.
-- Returns one row. newest, newest_us: the newest transaction with a segment in these queues and
--         when that was created, or null. taken_us: now, in microseconds since the epoch.
-- Model   Positions!Position
-- Why     The snapshot is this statement's, so it sees exactly the segments that newest was chosen
--         from. Readers cut it there: see skep.spark.source.positions.
create function skep.take_position(p_queue_id integer[])
returns table (
  system text, timeline integer, snapshot text, newest bigint, newest_us bigint, taken_us bigint)
language sql stable as $$
  select skep.system_identity(),
         skep.current_timeline(),
         pg_current_snapshot()::text,
         n.xid,
         (extract(epoch from n.created_at) * 1000000)::bigint,
         (extract(epoch from skep.now()) * 1000000)::bigint
  from (values (1)) one
  left join lateral (
    select s.xid::text::bigint as xid, s.created_at
    from unnest(p_queue_id) i(id)
    cross join lateral (
      select s.xid, s.created_at from skep.segment s
      where s.queue_id = i.id order by s.xid desc limit 1
    ) s
    order by s.xid::text::numeric desc limit 1
  ) n on true;
$$;
