-- push_messages: append messages to the log in the calling transaction.
-- Takes   per message, in parallel arrays: p_partition (null: Default), p_payload (JSON),
--         p_transaction_id (null: a new one), p_ttl_s (null: none).
-- Returns the message ids in the order of the arrays; for a transaction id already stored inside
--         the queue's window, the id of the stored message.
-- Raises  SK400 for an invalid message; SK403 for a queue whose rules SQL cannot follow; 40001 if a
--         queue is being deleted.
-- Locks   as find_partitions; then as push_keyed; other pushes wait for the transaction.
-- Why     The message exists if and only if the transaction commits, at the offset it was given.
--         That holds the partition's lock; transactions that take long should use skep.stage.
--         Security definer: an application needs only usage of the schema.
create function skep.push_messages(
  p_queue text[], p_partition text[], p_payload text[], p_transaction_id text[],
  p_headers jsonb[], p_trace_id uuid[], p_ttl_s double precision[]) returns uuid[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_seed constant bigint := (select i.hash_seed from skep.installation i);
  v_now constant timestamptz := skep.now();
  v_partition_id bigint[];
  v_key bytea[];
  v_envelope bytea[];
  v_offset bigint[];
begin
  perform skep.check_message(u.queue, u.partition, u.name, u.payload, u.headers, u.ttl_s)
  from unnest(p_queue, p_partition, p_transaction_id, p_payload, p_headers, p_ttl_s)
         u(queue, partition, name, payload, headers, ttl_s);
  v_partition_id := skep.find_partitions(
    p_queue, array(select coalesce(nullif(u.name, ''), 'Default')
                   from unnest(p_partition) with ordinality u(name, item) order by u.item));
  perform skep.refuse_governed(v_partition_id);

  select array_agg(skep.transaction_key(m.name, v_seed) order by m.item),
         array_agg(convert_to(skep.spell_envelope(
           m.name, m.payload, m.trace_id, m.headers, v_now + make_interval(secs => m.ttl_s)),
           'UTF8') order by m.item)
  into v_key, v_envelope
  from (
    select coalesce(nullif(u.name, ''), gen_random_uuid()::text) as name,
           btrim(u.payload, E' \t\n\r') as payload, u.headers, u.trace_id, u.ttl_s, u.item
    from unnest(p_transaction_id, p_payload, p_headers, p_trace_id, p_ttl_s) with ordinality
           u(name, payload, headers, trace_id, ttl_s, item)
    offset 0  -- a name is made once, though it is used twice
  ) m;
  v_offset := skep.push_keyed(
    v_partition_id, v_key,
    array(select coalesce(u.name, '') = ''
          from unnest(p_transaction_id) with ordinality u(name, item) order by u.item),
    v_envelope);

  if skep.is_told_at_commit() then
    perform pg_notify('skep_pushed', q.id::text)
    from (
      select distinct p.queue_id as id
      from unnest(v_partition_id) l(id) join skep.partition p on p.id = l.id
    ) q;
  end if;
  return array(
    select skep.message_uuid(m.id, m.at)
    from unnest(v_partition_id, v_offset) with ordinality m(id, at, item) order by m.item);
end $$;
