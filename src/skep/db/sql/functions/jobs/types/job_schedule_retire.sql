-- job_schedule_retire: end the schedules that an application does not declare any more.
-- Takes   p_owner: the application; p_name: the schedules that it declares.
-- Returns the names of those that ended now.
-- Locks   these skep.job_schedule rows.
-- Why     What was removed from the code must not go on. The rows stay, so that a schedule that is
--         declared again is as an operator left it. Schedules of other applications, and those put
--         by hand, are not its own.
create function skep.job_schedule_retire(p_owner text, p_name text[]) returns setof text
language sql as $$
  update skep.job_schedule s set is_enabled = false, removed_at = skep.now()
  where s.owner = p_owner and s.name <> all (p_name) and s.removed_at is null
  returning s.name;
$$;
