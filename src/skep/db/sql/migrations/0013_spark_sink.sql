/*
What writers on Spark need: a place for finished segments that no reader sees, and a record of what
was moved from there into the log.

Staging is not logged. It is written by many tasks, read once and emptied; a commit counts what it
finds, so what a crash took away is noticed and written again. Who stages is told apart by write
(a query, or one write of a DataFrame), epoch (micro-batch), task and attempt.
*/

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

create unlogged table skep.staged_segment (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt text not null,
  number integer not null,            -- the order in which the task made them
  queue text not null,
  partition text not null,
  messages integer not null,
  is_unique boolean not null,         -- the transaction ids were made up here and occur nowhere else
  is_sealed boolean not null,
  schema_digest text,                 -- md5 of the schema that the payloads were checked by
  keys bytea not null,
  body bytea not null,
  staged_at timestamptz not null default clock_timestamp(),
  constraint staged_segment__address primary key (write_id, epoch, task, attempt, number)
);
alter table skep.staged_segment alter column keys set storage external;
alter table skep.staged_segment alter column body set storage external;
create index staged_segment__staged on skep.staged_segment (staged_at);

-- Messages for later, each to become a row of skep.scheduled.
create unlogged table skep.staged_message (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt text not null,
  number integer not null,
  queue text not null,
  partition text not null,
  is_sealed boolean not null,
  schema_digest text,
  key bytea not null,
  transaction_id text not null,
  envelope bytea not null,
  deliver_at timestamptz not null,
  staged_at timestamptz not null default clock_timestamp(),
  constraint staged_message__address primary key (write_id, epoch, task, attempt, number)
);
create index staged_message__staged on skep.staged_message (staged_at);

-- Rows that are no messages, each to become a dead letter.
create unlogged table skep.staged_reject (
  write_id text not null,
  epoch bigint not null,
  task integer not null,
  attempt text not null,
  number integer not null,
  queue text not null,
  partition text not null,
  is_sealed boolean not null,
  transaction_id text not null,
  envelope bytea not null,
  error text not null,
  staged_at timestamptz not null default clock_timestamp(),
  constraint staged_reject__address primary key (write_id, epoch, task, attempt, number)
);
create index staged_reject__staged on skep.staged_reject (staged_at);

-- A dead letter has the address of its message. A row that was never stored gets an offset that no
-- partition will ever allocate.
create sequence skep.reject_offset as bigint minvalue 2305843009213693952
  maxvalue 4611686018427387903;
