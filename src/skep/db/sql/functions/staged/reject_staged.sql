-- reject_staged: turn staged messages that their queue refuses into dead letters.
-- Takes   p_id: ascending; p_key: 16 bytes that no other message has.
-- Returns how many; null if another session has taken the messages.
-- Raises  SK409 if the partition is gone; nothing was changed.
-- Locks   as claim_staged; as push_segments; skep.cursor rows in group order; then as drop_staged.
-- Why     The staging transaction has committed and cannot be told, and nothing may be lost. A dead
--         letter needs an address, so each message gets an offset in the partition, as a deleted
--         message that no consumer sees. Its letter belongs to the default group and can be
--         redriven. The key is not that of its transaction id: a corrected message must not be
--         taken for a duplicate.
create function skep.reject_staged(
  p_partition_id bigint, p_id bigint[], p_key bytea[], p_envelope bytea[], p_error text[])
returns integer
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_count constant integer := cardinality(p_id);
  v_queue_id integer;
  v_first bigint;
begin
  if not skep.claim_staged(p_id) then
    return null;
  end if;
  select r.first, p.queue_id into v_first, v_queue_id
  from skep.push_segments(
    array[p_partition_id], array[v_count], array[9223372036854775807],
    array['-infinity'::timestamptz],
    array[(select string_agg(k.key, ''::bytea order by k.item)
           from unnest(p_key) with ordinality k(key, item))],
    array[convert_to('[' || array_to_string(array_fill('null'::text, array[v_count]), ',') || ']',
                     'UTF8')],
    false) r
  join skep.partition p on p.id = r.partition_id;
  if not found then
    raise exception using errcode = 'SK409', message = 'a queue was deleted meanwhile';
  end if;

  insert into skep.deleted_message (partition_id, message_offset, deleted_at)
  select p_partition_id, v_first + g, v_now from generate_series(0, v_count - 1) g;
  perform 1 from skep.cursor c
  where c.partition_id = p_partition_id order by c.group_id for no key update;
  perform skep.pass_cursors(
    p_partition_id,
    array(select c.group_id from skep.cursor c where c.partition_id = p_partition_id),
    v_first, v_first + v_count - 1, v_now);

  insert into skep.dead_letter (
    partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
    created_at, failed_at)
  select p_partition_id,
         coalesce((select g.id from skep.consumer_group g
                   where g.queue_id = v_queue_id and g.name = '__QUEUE_MODE__'), 0),
         v_queue_id, v_first + l.item - 1,
         (split_part(l.envelope, ',"data":', 1) || '}')::json ->> 'transactionId',
         l.envelope::json, l.error, 0, v_now, v_now
  from (
    select convert_from(u.envelope, 'UTF8') as envelope, u.error, u.item
    from unnest(p_envelope, p_error) with ordinality u(envelope, error, item)
  ) l;
  perform skep.drop_staged(p_id);
  return v_count;
end $$;
