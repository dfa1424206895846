-- redrive_letters: push the messages of dead letters again and delete the letters.
-- Takes   per letter, in parallel arrays; p_partition_id: the target. p_redrive_id, p_owner,
--         p_position: the job, its owner, and its progress after this batch; null without one.
-- Returns per letter. Results: moved; duplicate (the partition already holds the message; the
--         letter stays); gone (the letter or its target no longer exists). No row at all: the job
--         is not running under this owner.
-- Raises  40001 if a letter vanished while its message was pushed; everything is rolled back.
-- Locks   the skep.redrive row; as lock_partitions; as push_distinct; then skep.dead_letter rows
--         for update, in id order.
-- Why     Letters come last, as in every function that holds a partition or cursor and touches
--         letters; nothing waits after they are deleted. A push in vain is rolled back.
create function skep.redrive_letters(
  p_letter_id bigint[], p_partition_id bigint[], p_key bytea[], p_envelope bytea[],
  p_redrive_id uuid, p_owner uuid, p_position bigint)
returns table (
  letter_id bigint, result text, queue_id integer, partition_id bigint, message_offset bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_target constant bigint[] :=
    array(select distinct u.id from unnest(p_partition_id) u(id) order by u.id);
  v_letter_id bigint[];
  v_to_partition bigint[];
  v_to_offset bigint[];
  v_moved bigint[];
begin
  if p_redrive_id is not null then
    perform 1 from skep.redrive r
    where r.id = p_redrive_id and r.owner = p_owner and r.state = 'running' for no key update;
    if not found then
      return;
    end if;
  end if;

  perform skep.lock_partitions(v_target);
  select array_agg(l.id), array_agg(v_target[l.partition]), array_agg(l.at),
         array_agg(l.id) filter (where not l.is_duplicate)
  into v_letter_id, v_to_partition, v_to_offset, v_moved
  from (
    select array_agg(i.id order by i.id) as ids,
           array_agg(array_position(v_target, i.partition_id) order by i.id) as partition,
           array_agg(i.key order by i.id) as key, array_agg(i.envelope order by i.id) as envelope
    from unnest(p_letter_id, p_partition_id, p_key, p_envelope) i(id, partition_id, key, envelope)
    where exists (select from skep.dead_letter d where d.id = i.id)
  ) m
  cross join lateral skep.push_distinct(
    v_target, array_fill(0::bigint, array[cardinality(v_target)]),
    array_fill('infinity'::timestamptz, array[cardinality(v_target)]), m.partition, m.key,
    m.envelope) d
  cross join lateral unnest(m.ids, m.partition, d.push_offset, d.push_is_duplicate)
    l(id, partition, at, is_duplicate)
  where m.ids is not null and l.at is not null;

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
