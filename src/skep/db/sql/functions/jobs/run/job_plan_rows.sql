-- job_plan_rows: the planner's estimate of the open jobs of a type that meet a condition.
-- Takes   p_type_id; p_condition: SQL for a table alias o.
-- Returns at least 1.
-- Why     See job_estimate. Volatile, because PostgreSQL allows EXPLAIN only in volatile functions.
create function skep.job_plan_rows(p_type_id integer, p_condition text) returns bigint
language plpgsql as $$
declare
  v_plan json;
begin
  execute format(
    'explain (format json) select from skep.open_job o where o.type_id = %s and %s',
    p_type_id, p_condition)
  into v_plan;
  return greatest((v_plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint, 1);
end $$;
