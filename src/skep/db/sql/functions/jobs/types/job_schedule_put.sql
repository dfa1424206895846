-- job_schedule_put: create or change a schedule.
-- Takes   p_name, p_type, p_input (JSON), p_cron, p_timezone, p_missed (skip, once, all),
--         p_priority, p_max_attempts, p_is_enabled, p_next_at; p_owner: the application that
--         declares it, null if an operator puts it by hand, or a worker of the release before.
-- Locks   the skep.job_schedule row.
-- Why     A starting worker puts its declared schedules. An unchanged one keeps its next_at, or
--         every deployment would miss a tick. Only an operator pauses and resumes: a deployment
--         must not switch on what an operator switched off.
create function skep.job_schedule_put(
  p_name text, p_type text, p_input text, p_cron text, p_timezone text, p_missed text,
  p_priority smallint, p_max_attempts integer, p_is_enabled boolean, p_next_at timestamptz,
  p_owner text default null)
returns void
language sql as $$
  insert into skep.job_schedule as s (
    name, type, input, cron, timezone, missed, priority, max_attempts, is_enabled, is_paused,
    next_at, owner)
  values (p_name, p_type, p_input::json, p_cron, p_timezone, p_missed, p_priority, p_max_attempts,
          p_is_enabled or p_owner is null, p_owner is null and not p_is_enabled, p_next_at, p_owner)
  on conflict (name) do update
  set type = excluded.type, input = excluded.input, cron = excluded.cron,
      timezone = excluded.timezone, missed = excluded.missed, priority = excluded.priority,
      max_attempts = excluded.max_attempts, is_enabled = excluded.is_enabled,
      is_paused = case when p_owner is null then excluded.is_paused else s.is_paused end,
      next_at = case when s.cron = excluded.cron and s.timezone = excluded.timezone
                          and s.is_enabled and not s.is_paused then s.next_at
                     else excluded.next_at end,
      owner = coalesce(p_owner, case when s.removed_at is null then s.owner end),
      removed_at = null;
$$;
