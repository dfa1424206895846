/*
Transactions that settled, and the queries, shards and state of streams.

A shard is what one query knows of one source partition. Its row is the lock that puts the cycles of
a shard one after the other, and it carries the shard's size, so that limits and listings never
count state rows.
*/

-- Remembered only until every broker has stopped asking whether its lost call was executed.
create table skep.settled_transaction (
  id uuid not null constraint settled_transaction__id primary key,
  answer json not null,
  settled_at timestamptz not null
);
create index settled_transaction__settled_at on skep.settled_transaction (settled_at);

create table skep.stream_query (
  id uuid not null default gen_random_uuid() constraint stream_query__id primary key,
  name text not null constraint stream_query__name_length check (length(name) <= 255),
  source_queue text not null,
  sink_queue text,
  config_hash text not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create unique index stream_query__name on skep.stream_query (name);

create table skep.stream_shard (
  query_id uuid not null references skep.stream_query (id) on delete cascade,
  partition_id bigint not null,
  row_count bigint not null default 0,
  byte_count bigint not null default 0,
  version bigint not null default 0,  -- the last one given to a row, so that none comes twice
  -- Windows that were flushed since the shard was last read whole. A cycle that still changes one
  -- of them was computed from state that is gone.
  closed_keys text[],
  updated_at timestamptz not null default clock_timestamp(),
  constraint stream_shard__address primary key (query_id, partition_id)
) with (fillfactor = 50);
create index stream_shard__partition on skep.stream_shard (partition_id);

create table skep.stream_state (
  query_id uuid not null,
  partition_id bigint not null,
  key text collate "C" not null,
  value json not null,
  -- The value's own windowEnd, so that nothing has to look into the value: an escaped NUL in it
  -- would make -> fail.
  window_end double precision,
  version bigint not null,  -- another one with every change, and never the same again
  offered_version bigint,   -- the version in which it was last read as ripe
  updated_at timestamptz not null,
  constraint stream_state__address primary key (query_id, partition_id, key),
  constraint stream_state__shard foreign key (query_id, partition_id)
    references skep.stream_shard (query_id, partition_id) on delete cascade
);
