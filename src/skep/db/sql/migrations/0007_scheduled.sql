/*
Messages that wait for their time outside the log. A row exists exactly as long as its message can
still be cancelled; being delivered or cancelled is being deleted.

The partition is named, not referenced: it may be cleaned up while the message waits, and is then
created anew. The storage is that of segments, for the same reason.
*/
create table skep.scheduled (
  id bigint generated always as identity primary key,
  queue_id integer not null,
  partition text not null,
  key bytea not null,                 -- 16 bytes, as in segment.keys
  transaction_id text not null,
  envelope bytea not null,            -- becomes an element of segment.body as it is
  deliver_at timestamptz not null,
  created_at timestamptz not null
);
alter table skep.scheduled alter column envelope set storage external;
create unique index scheduled__key on skep.scheduled (queue_id, partition, key);
create index scheduled__due on skep.scheduled (deliver_at, id);
create index scheduled__queue on skep.scheduled (queue_id, id);
