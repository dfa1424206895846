/*
What writers on Spark need: a place for what tasks have made and nobody may see yet, and a record of
what was moved from there into the log.

Segments are staged in the table of the log itself, in lanes that do not exist: their partition_id
is below 0 and their queue_id is 0, which no reader asks for. To commit them is to change their
address; the bytes stay where they are, so that lanes are not locked while megabytes are copied.

What is known of them, and everything else, is in tables that are not logged: they are written by
many tasks, read once and emptied. A commit counts what it finds, so what a crash took away is
noticed and written again. Who stages is told apart by write (a query, or one write of a DataFrame),
epoch (micro-batch), task and attempt.
*/

-- Names the attempts of tasks. The lane of an attempt is its negative.
create sequence skep.staging_attempt as bigint;

-- A write that has committed, up to which epoch, and what all its epochs together brought.
create table skep.sink (
  write_id text primary key constraint sink__write_id_length check (length(write_id) <= 255),
  epoch bigint not null,              -- the last one committed
  is_passing boolean not null,        -- nobody will come back to it: forgotten with old staging
  messages bigint not null default 0,
  scheduled bigint not null default 0,
  duplicates bigint not null default 0,
  rejected bigint not null default 0,
  committed_at timestamptz not null
);
create index sink__passing on skep.sink (committed_at) where is_passing;

-- A segment that waits at (-attempt, number) in skep.segment.
create unlogged table skep.staged_segment (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt bigint not null,
  number integer not null,            -- the order in which the task made them
  queue text not null,
  partition text not null,
  messages integer not null,
  is_unique boolean not null,         -- the transaction ids were made up here and occur nowhere else
  is_sealed boolean not null,
  schema_digest text,                 -- md5 of the schema that the payloads were checked by
  staged_at timestamptz not null,
  constraint staged_segment__address primary key (write_id, epoch, task, attempt, number)
);
create index staged_segment__staged on skep.staged_segment (staged_at);

-- Messages for later, each to become a row of skep.scheduled.
create unlogged table skep.staged_message (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt bigint not null,
  number integer not null,
  queue text not null,
  partition text not null,
  is_sealed boolean not null,
  schema_digest text,
  key bytea not null,
  transaction_id text not null,
  envelope bytea not null,
  deliver_at timestamptz not null,
  staged_at timestamptz not null,
  constraint staged_message__address primary key (write_id, epoch, task, attempt, number)
);
create index staged_message__staged on skep.staged_message (staged_at);

-- Rows that are no messages, each to become a dead letter.
create unlogged table skep.staged_reject (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt bigint not null,
  number integer not null,
  queue text not null,
  partition text not null,
  is_sealed boolean not null,
  transaction_id text not null,
  envelope bytea not null,
  error text not null,
  staged_at timestamptz not null,
  constraint staged_reject__address primary key (write_id, epoch, task, attempt, number)
);
create index staged_reject__staged on skep.staged_reject (staged_at);

-- A dead letter has the address of its message. A row that was never stored gets an offset that no
-- partition will ever allocate.
create sequence skep.reject_offset as bigint minvalue 2305843009213693952
  maxvalue 4611686018427387903;
