/*
system_identity: the installation, outside of which transaction ids and partitions mean nothing.

Takes   nothing.
Returns the identifier of the cluster and the id of the database, with a colon between; behind a
        second one the schema of the installation, if it is not the default one.
Locks   none.
Why     A dump that was restored elsewhere carries the archive's watermarks along, but there other
        transactions have these ids. Two installations in one database share transactions, but
        not partitions, nor the directory of an archive, which is named after this. The default's
        name is written in two parts, as otherwise the chosen one would stand there as well.
*/
create function skep.system_identity() returns text
language sql stable as $$
  select c.system_identifier::text || ':' || d.oid::text
         || coalesce(':' || nullif('skep', 'sk' || 'ep'), '')
  from pg_control_system() c, pg_database d where d.datname = current_database();
$$;
