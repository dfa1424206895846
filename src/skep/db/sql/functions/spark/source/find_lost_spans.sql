/*
find_lost_spans: what was removed before a reader had read it.

Takes   p_queue_id. p_checked: removals this sees are old news. p_seen: what the reader has read;
        p_part, p_through: and of what p_part sees, the transactions below p_through; null without.
        p_has_archive: the reader finds in the lake what is there, and has not lost it.
Returns per queue that lost something: queue, upto (the newest transaction that lost a segment),
        created_to (when that segment was written), removed_at, is_archived.
Locks   none.
Why     A position names transactions, not offsets, so a gap cannot be seen in the log itself. The
        transaction p_through may have been read in part: if it lost something, that is reported.
        Of several removals only the newest is on record. One that hit only a transaction which had
        been open for longer than later, removed ones may go unnoticed; a hold prevents both.
*/
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
