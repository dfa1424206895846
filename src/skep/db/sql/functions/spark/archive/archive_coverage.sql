-- archive_coverage: which time of each queue is in the archive, and which in the live log.
-- Returns per queue that has or wants an archive, by name: is_running (a run began and has not
--         finished), is_foreign (as archive_work); gone_to: older messages were deleted without
--         being archived; covered_from, covered_to: this time is archived, null while empty;
--         live_from: the oldest message of the live log, null if empty.
-- Why     The archive's bound is a transaction. Adjacent transactions overlap in time, so the
--         oldest message is searched among the first hundred segments, which also bounds the cost.
create function skep.archive_coverage(p_limit integer, p_offset integer)
returns table (
  queue text, messages bigint, archived_at timestamptz, is_wanted boolean, is_running boolean,
  is_foreign boolean, gone_to timestamptz, covered_from timestamptz, covered_to timestamptz,
  live_from timestamptz, total bigint)
language sql stable as $$
  with page as materialized (
    select q.id, q.name, q.created_at, q.archive_after_s > 0 as is_wanted,
           coalesce(a.messages, 0) as messages, a.archived_at, a.upto,
           a.system is distinct from skep.system_identity() and a.system is not null as is_foreign,
           count(*) over () as total
    from skep.queue q left join skep.archive a on a.queue_id = q.id
    where q.archive_after_s > 0 or a.queue_id is not null
    order by q.name limit p_limit offset p_offset
  )
  select p.name, p.messages, p.archived_at, p.is_wanted,
         exists (select from skep.archive_run r where r.queue_id = p.id), p.is_foreign, g.gone_to,
         case when p.messages > 0 then greatest(p.created_at, g.gone_to) end,
         case when p.messages > 0 then coalesce(w.oldest, p.archived_at) end,
         l.oldest, p.total
  from page p
  left join lateral (
    select r.created_to as gone_to from skep.removed_span r
    where r.queue_id = p.id and not r.is_archived order by r.upto desc limit 1
  ) g on true
  cross join lateral (
    select min(s.created_at) as oldest from (
      select s.created_at from skep.segment s
      where s.queue_id = p.id and s.xid >= p.upto and s.partition_id > 0 order by s.xid limit 100
    ) s
  ) w
  cross join lateral (
    select min(s.created_at) as oldest from (
      select s.created_at from skep.segment s
      where s.queue_id = p.id and s.partition_id > 0 order by s.xid limit 100
    ) s
  ) l
  order by p.name;
$$;
