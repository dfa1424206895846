-- server_connections: how many connections PostgreSQL has, and how many ordinary roles may have.
-- Returns used (of all applications) and most.
-- Why     When the last one is taken, a broker that restarts cannot come back.
create function skep.server_connections() returns table (used bigint, most integer)
language sql stable as $$
  select count(*), current_setting('max_connections')::integer
                   - current_setting('superuser_reserved_connections')::integer
  from pg_stat_activity a where a.backend_type = 'client backend';
$$;
