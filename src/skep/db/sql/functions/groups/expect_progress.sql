-- expect_progress: do not count the past against groups whose delivery was resumed or moved.
-- Locks   skep.group_activity rows in ascending group.
-- Why     A group that was paused for an hour has made no progress in that hour, and is not stalled
--         for that when it goes on.
create function skep.expect_progress(p_group_id integer[]) returns void
language sql as $$
  update skep.group_activity a set expected_from = skep.now()
  from (
    select k.group_id from skep.group_activity k
    where k.group_id = any(p_group_id) order by k.group_id for no key update
  ) l
  where a.group_id = l.group_id;
$$;
