-- position_evidence: what tells whether a position still means what it meant when it was taken.
-- Takes   p_xid: the newest transaction it has seen. p_timeline: the one it was taken on.
-- Returns one row. created_us: when the segments of p_xid in these queues were created, in
--         microseconds since the epoch. kept: the newest transaction known to have committed on
--         that timeline and to be here; null if there is none.
-- Model   Positions!IsValid
-- Why     After a failover to a standby that was behind, or a recovery to an earlier time,
--         transaction ids are given out again. They are not below one that is still here.
create function skep.position_evidence(p_queue_id integer[], p_xid bigint, p_timeline integer)
returns table (created_us bigint[], kept bigint)
language sql stable as $$
  select array(
           select (extract(epoch from s.created_at) * 1000000)::bigint
           from unnest(p_queue_id) i(id)
           join skep.segment s on s.queue_id = i.id and s.xid = (p_xid::text)::xid8
           limit 1000),
         (select t.xid::text::bigint from skep.timeline t where t.number = p_timeline);
$$;
