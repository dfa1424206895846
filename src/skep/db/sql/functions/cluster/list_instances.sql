-- list_instances: the instances that serve this installation.
-- Returns per instance that reported within the last hour, last seen first.
-- Why     The database's clock is the only one all instances share.
create function skep.list_instances(p_limit integer)
returns table (id uuid, host text, port integer, version text, worker_count integer,
               started_at timestamptz, silent_s double precision)
language sql stable as $$
  select i.id, i.host, i.port, i.version, i.worker_count, i.started_at,
         extract(epoch from skep.now() - i.seen_at)::double precision
  from skep.instance i
  where i.seen_at >= skep.now() - interval '1 hour'
  order by i.seen_at desc, i.id
  limit p_limit;
$$;
