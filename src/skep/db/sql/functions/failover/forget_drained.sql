/*
forget_drained: drop the progress of spill files that do not exist any more.

Takes   p_file_id: files that were deleted. p_keep_days: what nobody spoke of for so long goes too.
Returns nothing.
Locks   the rows it deletes.
Why     A process may die between deleting a file and saying so; its row would stay for ever.
*/
create function skep.forget_drained(p_file_id uuid[], p_keep_days integer) returns void
language sql as $$
  delete from skep.drained_file d
  where d.file_id = any(p_file_id)
     or d.drained_at < skep.now() - make_interval(days => p_keep_days);
$$;
