/*
Background work: who does it, what it must not touch, and what it did.

Nothing here is written by push, pop or ack.
*/

-- Who does a kind of background work, and until when nobody else may.
create table skep.leadership (
  service text primary key,
  holder uuid not null,
  expires_at timestamptz not null
);

-- A reader outside (Spark, an archive) that still needs what its position has not seen. One that
-- did not come back for keep_s seconds is taken for dead: it must not keep the log for ever.
create table skep.hold (
  queue_id integer not null references skep.queue (id) on delete cascade,
  name text not null constraint hold__name_length check (length(name) <= 255),
  position pg_snapshot not null,
  keep_s integer not null,
  updated_at timestamptz not null,
  constraint hold__address primary key (queue_id, name)
);

-- One row per run, queue and kind of work that removed something. No foreign key: it would lock the
-- queue after its lanes, and a history may outlive its queue until its time is over.
create table skep.retention_history (
  id bigint generated always as identity primary key,
  run_id uuid not null,
  queue_id integer not null,
  kind text not null constraint retention_history__kind
    check (kind in ('retention', 'completed', 'eviction', 'dead_letter', 'partition')),
  messages bigint not null,
  segments bigint not null,
  partitions bigint not null,
  started_at timestamptz not null,
  duration_ms bigint not null
);
create unique index retention_history__run on skep.retention_history (run_id, queue_id, kind);
create index retention_history__started on skep.retention_history (started_at);
create index retention_history__queue on skep.retention_history (queue_id, id);

-- The group of queue mode is born with its queue and may never be used: such a group waits for
-- nothing and keeps nothing. Null until the first poll; every other group is born by one.
alter table skep.consumer_group
  add column first_polled_at timestamptz default clock_timestamp();
update skep.consumer_group g
set first_polled_at = case
  when g.name <> '__QUEUE_MODE__'
    or exists (select from skep.cursor c
               where c.group_id = g.id and (c.acked > 0 or c.lease_id is not null))
  then g.created_at end;

/*
Retention deletes segments as fast as pushes insert them. A fifth of a large log, the default, is
far too much to leave dead: both the space and the walk from its oldest end would suffer.
*/
alter table skep.segment set (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
  toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 10000
);
