-- job_schedule_tick: start the chain of a schedule's tick, once.
-- Takes   p_name; p_at: the tick, which must be the schedule's next_at; p_next_at: the one after;
--         p_chain_id: the new chain, or null to skip the tick.
-- Returns whether this call advanced the schedule.
-- Locks   the skep.job_schedule row; then as chain_start.
-- Why     Any number of processes may try: the row advances from p_at once, and the chain starts in
--         the same transaction.
create function skep.job_schedule_tick(
  p_name text, p_at timestamptz, p_next_at timestamptz, p_chain_id uuid)
returns boolean
language plpgsql as $$
declare
  v_schedule skep.job_schedule;
begin
  update skep.job_schedule s
  set next_at = p_next_at,
      last_at = case when p_chain_id is null then s.last_at else p_at end,
      last_chain_id = coalesce(p_chain_id, s.last_chain_id)
  where s.name = p_name and s.next_at = p_at and s.is_enabled and not s.is_paused
  returning s.* into v_schedule;
  if not found then
    return false;
  end if;
  if p_chain_id is not null then
    perform skep.chain_start(
      array[p_chain_id], array[v_schedule.type], array[v_schedule.input::text],
      array[v_schedule.priority], array[null::timestamptz], array[null::double precision],
      array[v_schedule.max_attempts], array[null::text], array[null::double precision],
      array[null::uuid], array[null::text], array[null::text], array[false],
      array[null::double precision], array[null::uuid], '{}', '{}', '{}'::text[], true);
  end if;
  return true;
end $$;
