/*
Analytics: what `skep analytics` made of each hour, for the dashboard and for reports.

Hours are those of UTC, by their begin. Queues and groups stand here by name, because what happened
is still true when they are gone. An hour that is computed again takes the place of what is here,
except where its source has lost something since: the fuller account stays.
*/

-- One row per run that was committed. The newest `upto` is the watermark.
create table skep.analytics_run (
  id bigint generated always as identity primary key,
  since timestamptz not null,         -- from this hour ...
  upto timestamptz not null,          -- ... to before this one
  messages bigint not null,           -- found in the log and its archive
  is_next boolean not null,           -- it began where the one before had ended, or earlier
  taken_at timestamptz not null,      -- when the position was taken
  position json not null,             -- what the log was then: nothing of any later hour is in it
  finished_at timestamptz not null
);
create index analytics_run__upto on skep.analytics_run (upto);
create index analytics_run__taken on skep.analytics_run (taken_at);

-- What a queue stored, by the log and its archive.
create table skep.analytics_volume (
  hour timestamptz not null,
  queue text not null,
  messages bigint not null,
  bytes bigint not null,              -- of payloads, as they were pushed
  partitions bigint not null,         -- that got at least one
  busiest_messages bigint not null,   -- in the partition that got most
  constraint analytics_volume__address primary key (hour, queue)
);

-- The keys of a queue that got most: names of partitions, or what a run was told to go by.
create table skep.analytics_key (
  hour timestamptz not null,
  queue text not null,
  kind text not null constraint analytics_key__kind check (kind in ('partition', 'key')),
  key text not null,
  messages bigint not null,
  bytes bigint not null,
  constraint analytics_key__address primary key (hour, queue, kind, key)
);

-- How a queue was delivered, by what the brokers counted.
create table skep.analytics_delivery (
  hour timestamptz not null,
  queue text not null,
  pushed bigint not null,
  delivered bigint not null,
  redelivered bigint not null,        -- of those delivered
  completed bigint not null,
  failed bigint not null,
  lag_ms_sum bigint not null,         -- from push to delivery, over the messages delivered
  lag_ms_max bigint not null,
  lag_counts bigint[] not null,       -- messages by lag; the bounds are those of the broker
  constraint analytics_delivery__address primary key (hour, queue)
);

-- What messages died of, by the dead letters.
create table skep.analytics_letter (
  hour timestamptz not null,
  queue text not null,
  group_name text not null,
  cause text not null,                -- the error without what differs from message to message
  letters bigint not null,
  age_ms_p50 bigint not null,         -- from push to death
  age_ms_p95 bigint not null,
  age_ms_max bigint not null,
  constraint analytics_letter__address primary key (hour, queue, group_name, cause)
);
create index redriven_letter__failed on skep.redriven_letter (failed_at);

-- How far a group was behind, by the samples of the minutes.
create table skep.analytics_lag (
  hour timestamptz not null,
  queue text not null,
  group_name text not null,
  samples bigint not null,
  backlog_mean double precision not null,
  backlog_max bigint not null,
  lag_s_mean double precision not null,   -- age of the oldest message that was not done
  lag_s_max bigint not null,
  constraint analytics_lag__address primary key (hour, queue, group_name)
);
