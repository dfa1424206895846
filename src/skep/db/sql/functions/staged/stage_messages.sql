-- stage_messages: enqueue messages in the calling transaction, without locks.
-- Takes   per message, in parallel arrays: p_partition (null: Default), p_payload (JSON),
--         p_transaction_id (null: a new one), p_deliver_at (null: at once), p_ttl_s (null: none).
-- Returns the transaction ids in the order of the arrays.
-- Raises  SK400 for an invalid message.
-- Locks   none.
-- Why     The messages exist if and only if the transaction commits; a broker then moves them into
--         the log, in commit order. So it may take long without blocking others. What the queue
--         refuses becomes a dead letter. A transaction-local setting, undone by a savepoint's
--         rollback, remembers that the transaction already drew its number and notifies: once is
--         enough. Security definer: an application needs only usage of the schema.
create function skep.stage_messages(
  p_queue text[], p_partition text[], p_payload text[], p_transaction_id text[],
  p_headers jsonb[], p_trace_id uuid[], p_deliver_at timestamptz[], p_ttl_s double precision[])
returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_xid constant text := pg_current_xact_id()::text;
  v_is_first constant boolean :=
    current_setting('skep.staging_xid', true) is distinct from v_xid;
  v_now constant timestamptz := skep.now();
  v_transaction_id text[];
begin
  perform skep.check_message(u.queue, u.partition, u.name, u.payload, u.headers, u.ttl_s)
  from unnest(p_queue, p_partition, p_transaction_id, p_payload, p_headers, p_ttl_s)
         u(queue, partition, name, payload, headers, ttl_s);
  if exists (select from unnest(p_deliver_at) u(at)
             where u.at > v_now + interval '31622400 seconds' or u.at = '-infinity') then
    raise exception using errcode = 'SK400', message = 'deliver_at is more than a year ahead';
  end if;

  with added as (
    insert into skep.staged (
      is_first, queue, partition, transaction_id, payload, headers, trace_id, deliver_at, ttl_s,
      staged_at)
    select v_is_first and u.item = 1, u.queue, coalesce(nullif(u.partition, ''), 'Default'),
           coalesce(nullif(u.name, ''), gen_random_uuid()::text),
           btrim(u.payload, E' \t\n\r')::json, u.headers, u.trace_id, u.deliver_at, u.ttl_s, v_now
    from unnest(p_queue, p_partition, p_transaction_id, p_payload, p_headers, p_trace_id,
                p_deliver_at, p_ttl_s) with ordinality
           u(queue, partition, name, payload, headers, trace_id, deliver_at, ttl_s, item)
    order by u.item
    returning id, transaction_id
  )
  select coalesce(array_agg(a.transaction_id order by a.id), '{}') into v_transaction_id
  from added a;

  if v_is_first and cardinality(v_transaction_id) > 0 then
    perform set_config('skep.staging_xid', v_xid, true);
    if skep.is_told_at_commit() then
      perform pg_notify('skep_staged', '');
    end if;
  end if;
  return v_transaction_id;
end $$;
