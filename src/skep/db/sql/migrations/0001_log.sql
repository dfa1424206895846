/*
The log: queues, their ordered lanes, what was pushed into them and how far each group has read.

No foreign key points at or from the hot tables (segment, cursor): a check on every insert would
lock and read rows the functions already hold. The functions keep these references whole.
*/

create table skep.installation (
  only_row boolean primary key default true check (only_row),
  -- Seeds the 16-byte keys of transaction ids, so that nobody outside can craft two that collide.
  hash_seed bigint not null,
  created_at timestamptz not null default clock_timestamp()
);

insert into skep.installation (hash_seed)
values (('x' || substr(md5(gen_random_uuid()::text), 1, 15))::bit(60)::bigint);

create table skep.queue (
  id integer generated always as identity primary key,
  name text not null constraint queue__name_length check (length(name) <= 255),
  namespace text not null default '',
  task text not null default '',
  priority integer not null default 0,
  lease_time_s integer not null default 300,
  retry_limit integer not null default 3,
  retry_delay_ms integer not null default 1000,
  max_size integer not null default 0,
  ttl_s integer not null default 3600,
  dead_letter_queue boolean not null default false,
  dlq_after_max_retries boolean not null default false,
  delayed_processing_s integer not null default 0,
  window_buffer_s integer not null default 0,
  retention_s integer not null default 0,
  completed_retention_s integer not null default 0,
  retention_enabled boolean not null default false,
  encryption_enabled boolean not null default false,
  max_wait_time_s integer not null default 0,
  dedup_window_s integer not null default 3600,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create unique index queue__name on skep.queue (name);
create index queue__namespace_task on skep.queue (namespace, task);

/*
One row per lane. A push changes head and pushed_at, never an indexed column, so its update stays
on the page (heap-only); the free space for that is the fillfactor. Vacuum is triggered by count,
not by share of the table: a hundred thousand idle lanes must not postpone it for the busy ones.
*/
create table skep.partition (
  id bigint generated always as identity primary key,
  queue_id integer not null references skep.queue (id),
  name text not null constraint partition__name_length check (length(name) <= 255),
  head bigint not null default 0,   -- last allocated offset
  tail bigint not null default 1,   -- first kept offset
  pushed_at timestamptz not null default '-infinity',  -- created_at of the newest segment
  created_at timestamptz not null default clock_timestamp()
) with (
  fillfactor = 70, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
create unique index partition__queue_name on skep.partition (queue_id, name);

/*
One row per (partition, flush). body is a JSON array of envelopes, keys the 16-byte hashes of
their transaction ids in the same order. Bytes come compressed enough or not at all: the external
storage saves pglz on every push. Rows of up to half a page stay in the heap: for segments of a
dozen messages that saves a fifth of PostgreSQL's CPU per push against the default of a quarter
page, and two of them still fit on a page.
*/
create table skep.segment (
  partition_id bigint not null,
  first bigint not null,
  last bigint not null,
  queue_id integer not null,
  created_at timestamptz not null,
  xid xid8 not null default pg_current_xact_id(),
  keys bytea not null,
  body bytea not null,
  constraint segment__address primary key (partition_id, first)
) with (toast_tuple_target = 4080);
alter table skep.segment alter column keys set storage external;
alter table skep.segment alter column body set storage external;
create index segment__queue_xid on skep.segment (queue_id, xid);

create table skep.consumer_group (
  id integer generated always as identity primary key,
  queue_id integer not null references skep.queue (id),
  name text not null constraint consumer_group__name_length check (length(name) <= 255),
  subscription_mode text not null,
  subscribed_from timestamptz,
  created_at timestamptz not null default clock_timestamp()
);
create unique index consumer_group__queue_name on skep.consumer_group (queue_id, name);

/*
Progress of a group in a lane. available_at schedules everything: null = nothing to read, past =
ready, future = leased, delayed or backing off. lease_id outlives its lease on purpose: with
leased_from it tells, after a lost connection, what the claim had taken.
*/
create table skep.cursor (
  partition_id bigint not null,
  group_id integer not null,
  queue_id integer not null,
  acked bigint not null default 0,    -- every offset up to here is done
  leased_from bigint,                 -- the last claim took (leased_from, leased or acked]
  leased bigint,                      -- end of the range under lease; null = no lease
  lease_id uuid,                      -- the last claim
  available_at timestamptz,
  deliveries integer not null default 0,  -- claims of offset acked + 1 so far
  failed_offset bigint[],             -- offsets above acked that were nacked ...
  failed_count integer[],             -- ... and how often
  constraint cursor__address primary key (partition_id, group_id)
) with (
  fillfactor = 50, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
create index cursor__group_available on skep.cursor (group_id, available_at)
  where available_at is not null;
create index cursor__lease on skep.cursor (lease_id) where leased is not null;

create table skep.dead_letter (
  id bigint generated always as identity primary key,
  partition_id bigint not null,
  group_id integer not null,
  queue_id integer not null,
  message_offset bigint not null,
  transaction_id text not null,
  envelope json not null,
  error text not null,
  failures integer not null,
  created_at timestamptz not null,
  failed_at timestamptz not null
);
create unique index dead_letter__address
  on skep.dead_letter (partition_id, group_id, message_offset);
create index dead_letter__queue_failed on skep.dead_letter (queue_id, failed_at);
