-- archive_work: queues that have or want an archive.
-- Takes   p_queue: only these names; null for all.
-- Returns archived_at (null: never), is_wanted (archive_after_s is set), is_open (a run began and
--         has not finished), is_foreign (the archive belongs to the server this database was
--         restored from), is_typed (it has a table of its own), json_schema (null: any payload).
-- Why     What `skep archive` processes and shows.
create function skep.archive_work(p_queue text[])
returns table (
  queue_id integer, queue text, messages bigint, archived_at timestamptz, is_wanted boolean,
  is_open boolean, is_foreign boolean, is_typed boolean, json_schema json)
language sql stable as $$
  select q.id, q.name, coalesce(a.messages, 0), a.archived_at, q.archive_after_s > 0,
         exists (select from skep.archive_run r where r.queue_id = q.id),
         a.system is distinct from skep.system_identity() and a.system is not null,
         q.lake_table = 'typed', q.json_schema
  from skep.queue q left join skep.archive a on a.queue_id = q.id
  where (q.archive_after_s > 0 or a.queue_id is not null)
    and (p_queue is null or q.name = any(p_queue))
  order by q.id;
$$;
