-- server_identity: identify this cluster and the database in it.
-- Returns the cluster's system identifier and the database's oid, joined by a colon.
-- Why     pg_upgrade and a dump give a log to another server; see log_origin.
create function skep.server_identity() returns text
language sql stable as $$
  select c.system_identifier::text || ':' || d.oid::text
  from pg_control_system() c, pg_database d where d.datname = current_database();
$$;
