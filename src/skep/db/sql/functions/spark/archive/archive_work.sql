/*
archive_work: the queues that have an archive, or want one.

Takes   p_queue: only these names; null for all.
Returns queue_id, queue (its name), messages (archived so far), archived_at (last, null for never),
        is_wanted (archive_after_s says so), is_open (a run was begun and not finished), is_foreign
        (the archive is that of the server this database was restored from).
Locks   none.
Why     What a run of `skep archive` goes through, and what it shows.
*/
create function skep.archive_work(p_queue text[])
returns table (
  queue_id integer, queue text, messages bigint, archived_at timestamptz, is_wanted boolean,
  is_open boolean, is_foreign boolean)
language sql stable as $$
  select q.id, q.name, coalesce(a.messages, 0), a.archived_at, q.archive_after_s > 0,
         exists (select from skep.archive_run r where r.queue_id = q.id),
         a.system is distinct from skep.system_identity() and a.system is not null
  from skep.queue q left join skep.archive a on a.queue_id = q.id
  where (q.archive_after_s > 0 or a.queue_id is not null)
    and (p_queue is null or q.name = any(p_queue))
  order by q.id;
$$;
