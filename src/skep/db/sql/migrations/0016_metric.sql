/*
What happened, rolled up by time: written by the workers every few seconds, for the queues that were
used since, and purged when its time is over. Nothing here is written by push, pop or ack, and
nothing refers to a queue by a foreign key: that would lock it.
*/

-- A worker process that reports, for as long as it lives.
create table skep.metric_worker (
  id integer generated always as identity primary key,
  hostname text not null,
  port integer not null,
  number integer not null,
  pid integer not null,
  started_at timestamptz not null,
  seen_at timestamptz not null
);
create index metric_worker__seen on skep.metric_worker (seen_at);

-- What happened in a queue in the minute from `at` on, in all processes of the installation.
-- Rows of the present minute are updated again and again: room on their pages keeps that cheap.
create table skep.queue_minute (
  queue_id integer not null,
  at timestamptz not null,
  push_requests bigint not null,
  push_messages bigint not null,
  push_bytes bigint not null,
  push_duplicates bigint not null,
  pop_requests bigint not null,
  pop_messages bigint not null,
  pop_bytes bigint not null,
  pop_empty bigint not null,
  redelivered bigint not null,
  ack_requests bigint not null,
  ack_success bigint not null,
  ack_failed bigint not null,
  dead_letters bigint not null,
  transactions bigint not null,
  partitions_created bigint not null,
  lag_ms_sum bigint not null,      -- from push to delivery, over the messages delivered
  lag_ms_max bigint not null,
  lag_counts bigint[] not null,    -- messages by lag; the bounds are those of the broker
  constraint queue_minute__address primary key (queue_id, at)
) with (fillfactor = 70);
create index queue_minute__at on skep.queue_minute (at);

-- The same by hour, for hours that are over.
create table skep.queue_hour (
  like skep.queue_minute,
  constraint queue_hour__address primary key (queue_id, at)
);
create index queue_hour__at on skep.queue_hour (at);

-- The most polls that waited for a queue in one worker, by minute.
create table skep.parked_minute (
  queue_id integer not null,
  at timestamptz not null,
  worker_id integer not null,
  parked integer not null,
  constraint parked_minute__address primary key (queue_id, at, worker_id)
);
create index parked_minute__at on skep.parked_minute (at);

-- What a worker was doing in a minute, and by hour: sums of its counters, and least, greatest,
-- latest and average of its gauges. Only the broker looks inside.
create table skep.worker_minute (
  worker_id integer not null,
  at timestamptz not null,
  sample jsonb not null,
  constraint worker_minute__address primary key (worker_id, at)
);
create index worker_minute__at on skep.worker_minute (at);
create table skep.worker_hour (
  like skep.worker_minute,
  constraint worker_hour__address primary key (worker_id, at)
);
create index worker_hour__at on skep.worker_hour (at);

-- How far behind a consumer group was, by minute, while its queue was used.
create table skep.group_minute (
  group_id integer not null,
  at timestamptz not null,
  backlog bigint not null,
  lag_s bigint not null,
  constraint group_minute__address primary key (group_id, at)
);
create index group_minute__at on skep.group_minute (at);

-- What was counted since the installation began, by counter.
create table skep.metric_total (
  name text primary key,
  value bigint not null
) with (fillfactor = 50);
