-- Who serves this installation. One row per running instance, written every few seconds by its
-- first process: people and dashboards read it, nothing depends on it.
create table skep.instance (
  id uuid primary key,
  host text not null,
  port integer not null,
  version text not null,
  worker_count integer not null,
  started_at timestamptz not null,
  seen_at timestamptz not null
) with (fillfactor = 50);
