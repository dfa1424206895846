/*
push: append a message to the log, as part of the transaction that calls it.

Takes   queue; partition (null: Default); payload: json, jsonb, or text that is JSON; transaction_id
        (null: a new one); headers: an object of scalars; trace_id; ttl_s: seconds after which it is
        not delivered any more.
Returns the id of the message; of one whose transaction id is stored already, inside the queue's
        window, the id of that.
Raises  as push_messages.
Locks   as push_messages: pushes of others into the partition wait until the transaction ends.
Why     See push_messages, which takes many. Of the three kinds of payload PostgreSQL takes the text
        for a literal without a type.
*/
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
