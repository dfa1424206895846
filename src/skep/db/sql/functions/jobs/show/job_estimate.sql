-- job_estimate: estimate job counts that were too large to count.
-- Takes   p_type_id; p_counted: jobs counted as ready, scheduled, blocked and running; p_bound: a
--         number that reached this was not counted to its end.
-- Returns the four numbers; incomplete ones from the planner's statistics, which autovacuum renews,
--         and never below what was counted.
-- Why     The order of magnitude is what people want, and it costs a plan, not a scan. The total of
--         a type is known best: exact counts are subtracted, and the rest is shared as the planner
--         would.
create function skep.job_estimate(p_type_id integer, p_counted bigint[], p_bound integer)
returns bigint[]
language plpgsql as $$
declare
  v_state constant text[] := array[
    format('o.worker_id is null and o.open_blockers = 0 and o.due_at <= %L', skep.now()),
    format('o.worker_id is null and o.open_blockers = 0 and o.due_at > %L', skep.now()),
    'o.open_blockers > 0', 'o.worker_id is not null'];
  v_share bigint[] := '{0,0,0,0}';
  v_rest bigint;
  v_answer bigint[] := p_counted;
begin
  if p_bound > all (p_counted) then
    return p_counted;
  end if;
  v_rest := skep.job_plan_rows(p_type_id, 'true')
    - (select coalesce(sum(u.n), 0) from unnest(p_counted) u(n) where u.n < p_bound);
  for i in 1..4 loop
    if p_counted[i] >= p_bound then
      v_share[i] := skep.job_plan_rows(p_type_id, v_state[i]);
    end if;
  end loop;
  for i in 1..4 loop
    if p_counted[i] >= p_bound then
      v_answer[i] := greatest(
        p_counted[i], v_rest * v_share[i] / (select sum(u.n) from unnest(v_share) u(n)));
    end if;
  end loop;
  return v_answer;
end $$;
