-- stage: enqueue a message in the calling transaction, without locks.
-- Takes   partition (null: Default); transaction_id (null: a new one); headers: an object of
--         scalars; deliver_at: not before; ttl_s: seconds until it expires.
-- Returns the transaction id of the message.
-- Raises  as stage_messages.
-- Why     See stage_messages. PostgreSQL picks the text variant for an untyped literal.
create function skep.stage(
  queue text, partition text, payload text, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, deliver_at timestamptz default null,
  ttl_s double precision default null) returns text
language sql as $$
  select (skep.stage_messages(
    array[queue], array[partition], array[payload], array[transaction_id], array[headers],
    array[trace_id], array[deliver_at], array[ttl_s]))[1];
$$;

create function skep.stage(
  queue text, partition text, payload json, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, deliver_at timestamptz default null,
  ttl_s double precision default null) returns text
language sql as $$
  select skep.stage(
    queue, partition, payload::text, transaction_id, headers, trace_id, deliver_at, ttl_s);
$$;

create function skep.stage(
  queue text, partition text, payload jsonb, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, deliver_at timestamptz default null,
  ttl_s double precision default null) returns text
language sql as $$
  select skep.stage(
    queue, partition, payload::text, transaction_id, headers, trace_id, deliver_at, ttl_s);
$$;
