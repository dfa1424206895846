/*
job_type_list: one page of the types of jobs.

Takes   p_after: the last name of the page before, null to begin; p_limit.
Returns name, is_paused, and the limits (null = none) in the order of the names.
Locks   none.
Why     How many jobs of a type are open is asked for apart (job_counts): it costs more.
*/
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
