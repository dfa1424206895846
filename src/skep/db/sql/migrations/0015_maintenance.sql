/*
Maintenance: which modes are on, for all instances, and how far spilled messages came back.
*/

-- One row per mode that was ever set. Read by every process once a second.
create table skep.maintenance_mode (
  mode text primary key constraint maintenance_mode__mode check (mode in ('push', 'pop')),
  enabled boolean not null,
  changed_at timestamptz not null
);

-- How far a spill file was drained, written in the transaction that stored its messages. That alone
-- makes draining happen once: windows of duplicates may be shorter than an outage.
create table skep.drained_file (
  file_id uuid primary key,
  position bigint not null,
  drained_at timestamptz not null
);
create index drained_file__drained_at on skep.drained_file (drained_at);
