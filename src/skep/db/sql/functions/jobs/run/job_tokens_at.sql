/*
job_tokens_at: when the next job of a type with a rate may start, if any is ready.

Takes   p_type_id: types. p_now.
Returns the earliest moment at which a type that has ready jobs and no token gets one; null when
        there is no such type.
Locks   none.
Why     A worker that found nothing to claim sleeps until something changes. Time alone gives
        tokens: nobody will wake it for that.
*/
create function skep.job_tokens_at(p_type_id integer[], p_now timestamptz) returns timestamptz
language sql stable as $$
  select min(p_now + make_interval(secs => greatest(0.001, (1 - w.tokens) / w.per_s)))
  from (
    select t.rate_limit / t.rate_period_s as per_s,
           t.tokens + extract(epoch from p_now - t.refilled_at) * t.rate_limit / t.rate_period_s
             as tokens
    from skep.job_type t
    -- Priority by priority, as a claim looks; a plain exists would be planned as a walk over all
    -- that is ready.
    cross join lateral (
      select from skep.job_fronts(array[t.id], '-infinity') f where f.due_at <= p_now limit 1
    ) f
    where t.id = any (p_type_id) and t.rate_limit is not null
  ) w
  where w.tokens < 1;
$$;
