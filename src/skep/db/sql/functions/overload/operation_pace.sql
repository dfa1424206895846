-- operation_pace: how fast deferred operations are carried out.
-- Returns seconds per operation, over the last hundred completed within five minutes.
-- Why     All processes share the work, so only the database knows the overall rate.
create function skep.operation_pace() returns double precision
language sql stable as $$
  select extract(epoch from max(r.finished_at) - min(r.finished_at))::double precision
         / nullif(count(*) - 1, 0)
  from (
    select o.finished_at from skep.operation o
    where o.status = 'completed' and o.finished_at > skep.now() - interval '5 minutes'
    order by o.finished_at desc, o.number desc limit 100
  ) r;
$$;
