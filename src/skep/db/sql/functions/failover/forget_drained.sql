-- forget_drained: delete the progress of spill files that no longer exist.
-- Takes   p_keep_days: rows untouched for so long go too.
-- Locks   the deleted rows.
-- Why     A process may die between deleting a file and reporting it; its row would stay for ever.
create function skep.forget_drained(p_file_id uuid[], p_keep_days integer) returns void
language sql as $$
  delete from skep.drained_file d
  where d.file_id = any(p_file_id)
     or d.drained_at < skep.now() - make_interval(days => p_keep_days);
$$;
