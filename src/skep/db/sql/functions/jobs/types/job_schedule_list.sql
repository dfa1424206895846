-- job_schedule_list: one page of schedules.
-- Takes   p_due: only enabled schedules that are due; p_name: only this one, null for any; p_after:
--         the last name of the previous page, null to begin; p_limit.
-- Returns schedules by name, and now, by which due is decided. is_enabled: it runs, because it is
--         declared so and not paused.
-- Why     The scheduler and listings read the same rows.
create function skep.job_schedule_list(
  p_due boolean, p_name text, p_after text, p_limit integer)
returns table (
  name text, type text, input text, cron text, timezone text, missed text, priority smallint,
  max_attempts integer, is_enabled boolean, next_at timestamptz, last_at timestamptz,
  last_chain_id uuid, is_paused boolean, owner text, removed_at timestamptz, now timestamptz)
language sql stable as $$
  select s.name, s.type, s.input::text, s.cron, s.timezone, s.missed, s.priority, s.max_attempts,
         s.is_enabled and not s.is_paused, s.next_at, s.last_at, s.last_chain_id, s.is_paused,
         s.owner, s.removed_at, n.now
  from (select skep.now() as now) n
  join skep.job_schedule s
    on (p_after is null or s.name > p_after) and (p_name is null or s.name = p_name)
       and (not p_due or s.is_enabled and not s.is_paused and s.next_at <= n.now)
  order by s.name limit p_limit;
$$;
