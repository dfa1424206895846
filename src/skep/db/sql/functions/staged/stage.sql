/*
stage: enqueue a message as part of the transaction that calls it, without any lock.

Takes   queue; partition (null: Default); payload: json, jsonb, or text that is JSON; transaction_id
        (null: a new one); headers: an object of scalars; trace_id; deliver_at: not before then;
        ttl_s: seconds after which it is not delivered any more.
Returns the transaction id of the message.
Raises  as stage_messages.
Locks   none.
Why     See stage_messages, which takes many. Of the three kinds of payload PostgreSQL takes the text
        for a literal without a type.
*/
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
