-- operation_stats: deferred operations by type and status.
-- Returns one row per type and status that ever occurred, processing as a status of its own;
--         oldest_at, newest_at: when the oldest and the newest waiting operation were accepted.
-- Why     Reads totals, the few operations being processed, and ends of indexes; never the backlog.
create function skep.operation_stats()
returns table (
  type text, status text, operations bigint, bytes bigint, pace_s double precision,
  oldest_at timestamptz, newest_at timestamptz)
language sql stable as $$
  with working as materialized (
    select o.type, count(*) as operations, sum(o.bytes)::bigint as bytes
    from skep.operation o where o.status = 'processing' group by o.type
  ),
  total as (
    select t.type, t.status, sum(t.operations)::bigint as operations,
           sum(t.bytes)::bigint as bytes
    from skep.operation_total t group by t.type, t.status
  )
  select c.type, c.status, c.operations, c.bytes, skep.operation_pace(),
         (select o.created_at from skep.operation o
          where o.status = 'waiting' order by o.number limit 1),
         (select o.created_at from skep.operation o
          where o.status = 'waiting' order by o.number desc limit 1)
  from (
    select t.type, t.status,
           t.operations - case when t.status = 'waiting' then coalesce(w.operations, 0) else 0 end
             as operations,
           t.bytes - case when t.status = 'waiting' then coalesce(w.bytes, 0) else 0 end as bytes
    from total t left join working w on w.type = t.type
    union all
    select w.type, 'processing', w.operations, w.bytes from working w
  ) c
  order by c.type, c.status;
$$;
