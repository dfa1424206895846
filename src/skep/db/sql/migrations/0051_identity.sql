/*
Which server this installation belongs to, and the name that readers on Spark and the lake know it by.

The name stays when the server gets another one by `pg_upgrade`, which keeps all transaction ids. A
dump that is restored elsewhere carries the row along, too: there it names another server.
*/
create table skep.identity (
  is_only boolean primary key default true check (is_only),
  server text not null,               -- the cluster and database it was last adopted in
  name text not null,                 -- what positions and the lake call it
  xid xid8 not null default pg_current_xact_id()  -- of this row: a dump keeps it, xmin it does not
);
insert into skep.identity (server, name)
select s.id, s.id
from (select c.system_identifier::text || ':' || d.oid::text as id
      from pg_control_system() c, pg_database d where d.datname = current_database()) s;
