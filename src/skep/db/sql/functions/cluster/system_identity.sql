-- system_identity: identify the installation in which transaction ids and partition ids are valid.
-- Returns the cluster's system identifier and the database's oid, joined by a colon; then a colon
--         and the schema's name unless it is the default.
-- Why     A dump restored elsewhere keeps the archive's watermarks, but its transaction ids mean
--         other transactions there. Two installations in one database share transactions, but
--         neither partitions nor the archive directory, which is named after this. The default
--         schema is spelled in two parts because installing replaces its name.
create function skep.system_identity() returns text
language sql stable as $$
  select c.system_identifier::text || ':' || d.oid::text
         || coalesce(':' || nullif('skep', 'sk' || 'ep'), '')
  from pg_control_system() c, pg_database d where d.datname = current_database();
$$;
