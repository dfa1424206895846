-- find_lost_spans: what was removed before a reader read it.
-- Takes   p_queue_id. p_checked: removals this snapshot sees were reported. p_seen: what the reader
--         has read; p_part, p_through: and of what p_part sees, transactions below p_through, or
--         null. p_has_archive: the reader also reads the lake.
-- Returns per queue with a loss: queue, upto (the newest transaction that lost a segment),
--         created_to (when that was written), removed_at, is_archived.
-- Why     A position names transactions, not offsets, so the log itself shows no gap. The
--         transaction p_through may be read in part; a loss there is reported. Only the newest
--         removal is recorded: one that only hit a transaction which was open longer than later
--         removed ones may go unnoticed. A hold prevents both.
create function skep.find_lost_spans(
  p_queue_id integer[], p_checked pg_snapshot, p_seen pg_snapshot, p_part pg_snapshot,
  p_through bigint, p_has_archive boolean default false)
returns table (
  queue text, upto bigint, created_to timestamptz, removed_at timestamptz, is_archived boolean)
language sql stable as $$
  select distinct on (q.name) q.name, r.upto::text::bigint, r.created_to, r.removed_at,
         r.is_archived
  from skep.removed_span r
  join skep.queue q on q.id = r.queue_id
  where r.queue_id = any(p_queue_id)
    and not (p_has_archive and r.is_archived)
    and not pg_visible_in_snapshot(r.xid, p_checked)
    and not pg_visible_in_snapshot(r.upto, p_seen)
    and not (p_part is not null and pg_visible_in_snapshot(r.upto, p_part)
             and r.upto < (p_through::text)::xid8)
  order by q.name, r.upto desc;
$$;
