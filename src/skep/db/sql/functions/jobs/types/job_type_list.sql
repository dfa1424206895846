-- job_type_list: one page of job types.
-- Takes   p_after: the last name of the previous page, null to begin; p_limit.
-- Returns by name: name, is_paused, and the limits (null: none).
-- Why     job_counts counts open jobs separately: it costs more.
create function skep.job_type_list(p_after text, p_limit integer)
returns table (
  name text, is_paused boolean, concurrency integer, key_concurrency integer, rate_limit integer,
  rate_period_s double precision)
language sql stable as $$
  select t.name, t.is_paused, t.concurrency, t.key_concurrency, t.rate_limit, t.rate_period_s
  from skep.job_type t
  where p_after is null or t.name > p_after
  order by t.name limit p_limit;
$$;
