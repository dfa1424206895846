/*
The archive: what was copied to the lake, and what a run is about to copy.

Copying and deleting are two matters. A queue's archive has a watermark, a transaction id: whatever
the queue stored below it is in the lake. Segments below it go from the live log once every group
has read them, or when retention wants them gone.
*/

alter table skep.queue
  add column archive_after_s integer not null default 0,          -- 0 = no archive
  add column archive_before_delete boolean not null default false;

create table skep.archive (
  queue_id integer primary key references skep.queue (id) on delete cascade,
  system text not null,               -- the cluster and database whose transaction ids these are
  upto xid8 not null default '1',     -- every segment of an earlier transaction is in the lake
  messages bigint not null default 0,
  archived_at timestamptz
);

-- A run that was planned and is not committed. Its bounds stay as they are, whoever goes on with
-- it after a crash; its files lie in a directory of its own, one for each attempt.
create table skep.archive_run (
  id uuid primary key default gen_random_uuid(),
  queue_id integer not null unique references skep.queue (id) on delete cascade,
  since xid8 not null,                -- from this transaction ...
  upto xid8 not null,                 -- ... to before this one
  attempt integer not null default 1,
  planned_at timestamptz not null
);

alter table skep.retention_history drop constraint retention_history__kind;
alter table skep.retention_history add constraint retention_history__kind
  check (kind in ('retention', 'completed', 'eviction', 'dead_letter', 'partition', 'archive'));

/*
What was removed and is in the lake is lost for readers of the live log only. Removals of both kinds
are on record side by side: what is gone for good outdates either kind, the other only its own.
*/
alter table skep.removed_span add column is_archived boolean not null default false;

create or replace function skep.note_removal () returns trigger
language plpgsql as $$
begin
  with gone as (
    select d.queue_id, max(d.xid::text::numeric)::text::xid8 as upto,
           max(d.created_at) as created_to, d.xid < coalesce(a.upto, '1') as is_archived
    from removed d join skep.queue q on q.id = d.queue_id
    left join skep.archive a on a.queue_id = d.queue_id
    group by d.queue_id, d.xid < coalesce(a.upto, '1')
  ),
  outdated as (
    select r.id from gone g
    join skep.removed_span r on r.queue_id = g.queue_id and r.upto <= g.upto
      and (r.is_archived or not g.is_archived)
    limit 100 for update of r skip locked
  ),
  forgotten as (
    delete from skep.removed_span r using outdated o where r.id = o.id
  )
  insert into skep.removed_span (queue_id, upto, created_to, is_archived)
  select g.queue_id, g.upto, g.created_to, g.is_archived from gone g;
  return null;
end $$;

/*
The catalog of the lake: the tables of Iceberg's JDBC catalog, as every program with a catalog of
that kind expects them. They are made here because whoever archives may not create tables.
*/
create schema skep_lake;

create table skep_lake.iceberg_tables (
  catalog_name varchar(255) not null,
  table_namespace varchar(255) not null,
  table_name varchar(255) not null,
  metadata_location varchar(1000),
  previous_metadata_location varchar(1000),
  iceberg_type varchar(5),
  primary key (catalog_name, table_namespace, table_name)
);
create table skep_lake.iceberg_namespace_properties (
  catalog_name varchar(255) not null,
  namespace varchar(255) not null,
  property_key varchar(255) not null,
  property_value varchar(1000),
  primary key (catalog_name, namespace, property_key)
);
