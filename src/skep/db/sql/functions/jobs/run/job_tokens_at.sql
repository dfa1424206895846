-- job_tokens_at: when a rate-limited type with ready jobs gets its next token.
-- Takes   p_type_id: types. p_now.
-- Returns the earliest moment at which a type with ready jobs and no token gets one; null if there
--         is none.
-- Why     A worker without jobs sleeps until something changes. Tokens come with time alone, which
--         wakes no worker.
create function skep.job_tokens_at(p_type_id integer[], p_now timestamptz) returns timestamptz
language sql stable as $$
  select min(p_now + make_interval(secs => greatest(0.001, (1 - w.tokens) / w.per_s)))
  from (
    select t.rate_limit / t.rate_period_s as per_s,
           t.tokens + extract(epoch from p_now - t.refilled_at) * t.rate_limit / t.rate_period_s
             as tokens
    from skep.job_type t
    -- By priority, as a claim does; a plain exists would walk all ready jobs.
    cross join lateral (
      select from skep.job_fronts(array[t.id], '-infinity') f where f.due_at <= p_now limit 1
    ) f
    where t.id = any (p_type_id) and t.rate_limit is not null
  ) w
  where w.tokens < 1;
$$;
