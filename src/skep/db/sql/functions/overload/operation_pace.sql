/*
operation_pace: how fast waiting operations are carried out at present.

Takes   nothing.
Returns seconds per operation, over the last hundred completed within five minutes; null when
        there are fewer than two of them.
Locks   none.
Why     All processes work on the same line, so only the database sees the pace of all together.
*/
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
