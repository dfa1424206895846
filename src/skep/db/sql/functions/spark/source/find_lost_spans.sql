-- find_lost_spans: what was removed before a reader read it.
-- Takes   p_queue_id: queues that were read. p_checked: removals this snapshot sees were reported.
--         p_seen: what the reader has read; p_part, p_through: and of what p_part sees,
--         transactions below p_through, or null. p_has_archive: the reader also reads the lake.
--         p_left: queues that were read and are not asked for now, which is no loss unless they
--         were deleted.
-- Returns per queue with a loss: queue, upto (the newest transaction that lost a segment),
--         created_to (when that was written), removed_at, is_archived, is_deleted (the queue was
--         deleted; the other columns are null if that is too long ago to tell what was in it).
-- Why     A position names transactions, not offsets, so the log itself shows no gap. The
--         transaction p_through may be read in part; a loss there is reported. Only the newest
--         removal is recorded: one that only hit a transaction which was open longer than later
--         removed ones may go unnoticed. A hold prevents both.
create function skep.find_lost_spans(
  p_queue_id integer[], p_checked pg_snapshot, p_seen pg_snapshot, p_part pg_snapshot,
  p_through bigint, p_has_archive boolean default false, p_left integer[] default '{}')
returns table (
  queue text, upto bigint, created_to timestamptz, removed_at timestamptz, is_archived boolean,
  is_deleted boolean)
language sql stable as $$
  with known as (
    select i.id, q.name
    from unnest(p_queue_id || p_left) i(id) left join skep.queue q on q.id = i.id
    where i.id = any(p_queue_id) or q.id is null
  )
  (select distinct on (k.id) coalesce(k.name, r.queue), r.upto::text::bigint, r.created_to,
          r.removed_at, r.is_archived and k.name is not null, k.name is null
   from known k join skep.removed_span r on r.queue_id = k.id
   where not (p_has_archive and r.is_archived and k.name is not null)
     and not pg_visible_in_snapshot(r.xid, p_checked)
     and not pg_visible_in_snapshot(r.upto, p_seen)
     and not (p_part is not null and pg_visible_in_snapshot(r.upto, p_part)
              and r.upto < (p_through::text)::xid8)
   order by k.id, r.upto desc)
  union all
  select 'with the id ' || k.id, null, null, null, false, true
  from known k
  where k.name is null and not exists (select from skep.removed_span r where r.queue_id = k.id)
  order by 1;
$$;
