/*
system_identity: the cluster and the database, outside of which transaction ids mean nothing.

Takes   nothing.
Returns the identifier of the cluster and the id of the database, with a colon between.
Locks   none.
Why     A dump that was restored elsewhere carries the archive's watermarks along, but there other
        transactions have these ids.
*/
create function skep.system_identity() returns text
language sql stable as $$
  select c.system_identifier::text || ':' || d.oid::text
  from pg_control_system() c, pg_database d where d.datname = current_database();
$$;
