-- job_schedule_pause: pause or resume a schedule, by an operator.
-- Takes   p_name; p_is_paused; p_next_at: when a resumed schedule is due next.
-- Returns whether it exists.
-- Locks   the skep.job_schedule row.
-- Why     A pause outlasts deployments. What passed meanwhile was not missed, so a resumed schedule
--         goes on with its next tick. One that is put by hand has no application to enable it.
create function skep.job_schedule_pause(p_name text, p_is_paused boolean, p_next_at timestamptz)
returns boolean
language plpgsql as $$
begin
  update skep.job_schedule s
  set is_paused = p_is_paused,
      is_enabled = s.is_enabled or not p_is_paused and s.owner is null,
      next_at = case when s.is_paused and not p_is_paused then p_next_at else s.next_at end
  where s.name = p_name;
  return found;
end $$;
