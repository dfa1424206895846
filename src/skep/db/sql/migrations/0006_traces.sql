/*
Traces: what applications say happened to a message, and the names they file it under.

A trace outlives its message: it names the message by address and by transaction id and refers to
no row of the log. Traces go by age (purge_traces), or with a message that is deleted.
*/

create table skep.trace (
  id bigint generated always as identity primary key,
  partition_id bigint not null,
  message_offset bigint not null,
  transaction_id text not null,
  event_type text not null,
  data text not null,  -- JSON as it was sent; as json or jsonb some of it could not be stored
  consumer_group text,
  worker_id text,
  names text[] not null,  -- ascending, no name twice
  created_at timestamptz not null
);
create index trace__message on skep.trace (partition_id, transaction_id, id);
create index trace__created on skep.trace (created_at);

-- The traces of a name. The second index answers whether a name has other traces of a message.
create table skep.trace_name (
  name text not null constraint trace_name__length check (length(name) <= 255),
  trace_id bigint not null,
  partition_id bigint not null,
  message_offset bigint not null,
  constraint trace_name__address primary key (name, trace_id)
);
create index trace_name__message on skep.trace_name (name, partition_id, message_offset);

-- Kept with every trace, so that a page of names counts nothing. Its row is locked before the
-- traces of a name change; that makes the counts exact.
create table skep.trace_name_total (
  name text primary key,
  trace_count bigint not null,
  message_count bigint not null,
  last_seen timestamptz not null
) with (fillfactor = 70);
create index trace_name_total__last_seen on skep.trace_name_total (last_seen desc, name);
