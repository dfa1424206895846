-- redrive_letters: push the messages of dead letters again and delete the letters, in one
-- transaction.
-- Takes   per letter, in parallel arrays: p_letter_id, p_partition_id (the target), p_key,
--         p_envelope. p_redrive_id, p_owner, p_position: the job of this batch, its owner, and its
--         progress after the batch; null without a job.
-- Returns per letter: letter_id, result, queue_id, partition_id, message_offset. Results: moved;
--         duplicate (the partition already holds the message; the letter stays); gone (the letter
--         or its target no longer exists). No row at all: the job is not running under this owner.
-- Raises  40001 if a letter vanished while its message was pushed; everything is rolled back.
-- Locks   the skep.redrive row; then as push_segments; then skep.dead_letter rows for update, in id
--         order.
-- Why     Letters come last, as in every function that holds a partition or cursor and touches
--         letters; nothing waits after they are deleted. The price: a push may be in vain and is
--         rolled back.
create function skep.redrive_letters(
  p_letter_id bigint[], p_partition_id bigint[], p_key bytea[], p_envelope bytea[],
  p_redrive_id uuid, p_owner uuid, p_position bigint)
returns table (
  letter_id bigint, result text, queue_id integer, partition_id bigint, message_offset bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_letter_id bigint[];
  v_to_partition bigint[];
  v_to_offset bigint[];
  v_is_duplicate boolean[];
  v_moved bigint[];
begin
  if p_redrive_id is not null then
    perform 1 from skep.redrive r
    where r.id = p_redrive_id and r.owner = p_owner and r.state = 'running' for no key update;
    if not found then
      return;
    end if;
  end if;

  select array_agg(l.letter_id), array_agg(l.partition_id), array_agg(l.message_offset),
         array_agg(l.is_duplicate), array_agg(l.letter_id) filter (where not l.is_duplicate)
  into v_letter_id, v_to_partition, v_to_offset, v_is_duplicate, v_moved
  from (
    select array_agg(i.id order by i.partition_id, i.id) as ids,
           array_agg(i.partition_id order by i.partition_id, i.id) as partitions,
           array_agg(i.key order by i.partition_id, i.id) as keys,
           array_agg(i.envelope order by i.partition_id, i.id) as envelopes
    from unnest(p_letter_id, p_partition_id, p_key, p_envelope) i(id, partition_id, key, envelope)
    where exists (select from skep.dead_letter d where d.id = i.id)
  ) present
  cross join lateral skep.push_letters(
    present.ids, present.partitions, present.keys, present.envelopes) l
  where present.ids is not null;

  perform 1 from skep.dead_letter d where d.id = any(v_letter_id) order by d.id for update;
  if (select count(*) from skep.dead_letter d where d.id = any(v_moved))
     <> coalesce(cardinality(v_moved), 0) then
    raise exception using errcode = '40001', message = 'a dead letter vanished meanwhile';
  end if;
  with moved as (
    delete from skep.dead_letter d where d.id = any(v_moved) returning d.*
  )
  insert into skep.redriven_letter (
    id, partition_id, message_offset, group_id, queue_id, transaction_id, error, failures,
    created_at, failed_at, redriven_at, to_partition_id, to_offset)
  select m.id, m.partition_id, m.message_offset, m.group_id, m.queue_id, m.transaction_id,
         m.error, m.failures, m.created_at, m.failed_at, skep.now(), t.partition_id, t.at
  from moved m
  join unnest(v_letter_id, v_to_partition, v_to_offset) t(id, partition_id, at) on t.id = m.id;

  update skep.redrive r
  set moved = r.moved + coalesce(cardinality(v_moved), 0),
      duplicates = r.duplicates + (
        select count(*) from skep.dead_letter d
        where d.id = any(v_letter_id) and d.id <> all(coalesce(v_moved, '{}'))),
      position = p_position,
      progressed_at = skep.now()
  where r.id = p_redrive_id;

  return query
  select i.id,
         case when i.id = any(v_moved) then 'moved'
              when t.id is not null and d.id is not null then 'duplicate'
              else 'gone' end,
         p.queue_id, t.partition_id, t.at
  from unnest(p_letter_id) i(id)
  left join unnest(v_letter_id, v_to_partition, v_to_offset) t(id, partition_id, at)
    on t.id = i.id
  left join skep.dead_letter d on d.id = i.id
  left join skep.partition p on p.id = t.partition_id;
end $$;
