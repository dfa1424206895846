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
    where t.id = any (p_type_id) and t.rate_limit is not null
      and exists (
        select from skep.open_job o
        where o.type_id = t.id and o.due_at <= p_now
          and o.worker_id is null and o.open_blockers = 0)
  ) w
  where w.tokens < 1;
$$;
