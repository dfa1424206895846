-- late_archives: queues that were not archived when they should have been.
-- Takes   p_grace_s: how much later than archiveAfter is still in time.
-- Returns latest first: archived_at (null: never), late_s (since the end of the grace).
-- Why     Nothing else tells that archive runs stopped: the log only grows.
create function skep.late_archives(p_grace_s double precision, p_limit integer)
returns table (queue text, archived_at timestamptz, late_s double precision)
language sql stable as $$
  select l.name, l.archived_at, l.late_s
  from (
    select q.name, a.archived_at,
           extract(epoch from skep.now() - coalesce(a.archived_at, q.created_at))::double precision
           - q.archive_after_s - p_grace_s as late_s
    from skep.queue q left join skep.archive a on a.queue_id = q.id
    where q.archive_after_s > 0
  ) l
  where l.late_s > 0
  order by l.late_s desc, l.name limit p_limit;
$$;
