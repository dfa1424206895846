-- operation_latency: how long deferred operations take from acceptance to completion.
-- Returns seconds, over the last hundred completed within five minutes; nulls without any.
-- Why     Reads the same end of an index as operation_pace.
create function skep.operation_latency()
returns table (
  samples bigint, average_s double precision, p50_s double precision, p95_s double precision,
  max_s double precision)
language sql stable as $$
  select count(*), avg(r.seconds), percentile_cont(0.5) within group (order by r.seconds),
         percentile_cont(0.95) within group (order by r.seconds), max(r.seconds)
  from (
    select extract(epoch from o.finished_at - o.created_at)::double precision as seconds
    from skep.operation o
    where o.status = 'completed' and o.finished_at > skep.now() - interval '5 minutes'
    order by o.finished_at desc, o.number desc limit 100
  ) r;
$$;
