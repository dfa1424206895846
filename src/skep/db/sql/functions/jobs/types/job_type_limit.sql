-- job_type_limit: set concurrency and rate limits of job types.
-- Takes   in parallel arrays: p_name, p_concurrency, p_key_concurrency, p_rate_limit,
--         p_rate_period_s; null: no limit.
-- Returns the number of types that changed.
-- Locks   skep.job_type rows, in name order.
-- Why     Workers declare limits when they start. Unchanged rows are not written: claims of limited
--         types hold them. A new rate starts with a full bucket.
create function skep.job_type_limit(
  p_name text[], p_concurrency integer[], p_key_concurrency integer[], p_rate_limit integer[],
  p_rate_period_s double precision[])
returns integer
language plpgsql as $$
declare
  v_given record;
  v_changed integer := 0;
begin
  perform skep.job_type_ensure(p_name);
  for v_given in
    select u.* from unnest(p_name, p_concurrency, p_key_concurrency, p_rate_limit, p_rate_period_s)
      u(name, concurrency, key_concurrency, rate_limit, rate_period_s)
    order by u.name
  loop
    update skep.job_type t
    set concurrency = v_given.concurrency, key_concurrency = v_given.key_concurrency,
        rate_limit = v_given.rate_limit, rate_period_s = v_given.rate_period_s,
        tokens = coalesce(v_given.rate_limit, 0), refilled_at = skep.now()
    where t.name = v_given.name
      and (t.concurrency, t.key_concurrency, t.rate_limit, t.rate_period_s) is distinct from
          (v_given.concurrency, v_given.key_concurrency, v_given.rate_limit,
           v_given.rate_period_s);
    if found then
      v_changed := v_changed + 1;
    end if;
  end loop;
  return v_changed;
end $$;
