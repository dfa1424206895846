-- push: append a message to the log in the calling transaction.
-- Takes   partition (null: Default); transaction_id (null: a new one); headers: an object of
--         scalars; ttl_s: seconds until it expires.
-- Returns the message id; if the transaction id is already stored inside the queue's window, the id
--         of that message.
-- Raises  as push_messages.
-- Locks   as push_messages: other pushes into the partition wait until the transaction ends.
-- Why     See push_messages. PostgreSQL picks the text variant for an untyped literal.
create function skep.push(
  queue text, partition text, payload text, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, ttl_s double precision default null)
returns uuid
language sql as $$
  select (skep.push_messages(
    array[queue], array[partition], array[payload], array[transaction_id], array[headers],
    array[trace_id], array[ttl_s]))[1];
$$;

create function skep.push(
  queue text, partition text, payload json, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, ttl_s double precision default null)
returns uuid
language sql as $$
  select skep.push(queue, partition, payload::text, transaction_id, headers, trace_id, ttl_s);
$$;

create function skep.push(
  queue text, partition text, payload jsonb, transaction_id text default null,
  headers jsonb default null, trace_id uuid default null, ttl_s double precision default null)
returns uuid
language sql as $$
  select skep.push(queue, partition, payload::text, transaction_id, headers, trace_id, ttl_s);
$$;
