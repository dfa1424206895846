-- redrive_letters: push the messages of dead letters again and delete the letters.
-- Takes   per letter, in parallel arrays; p_partition_id: the target. p_redrive_id, p_owner,
--         p_position: the job, its owner, and its progress after this batch; null without one.
--         p_for_all: whether all groups of the target get the messages.
-- Returns per letter. Results: moved; duplicate (the partition already holds the message; the
--         letter stays); gone (the letter or its target no longer exists). No row at all: the job
--         is not running under this owner.
-- Raises  40001 if a letter vanished while its message was pushed; everything is rolled back.
-- Locks   the skep.redrive row; as lock_partitions; unless p_for_all, as lock_cursors, all cursors
--         of the targets; as push_distinct; then skep.dead_letter rows for update, in id order.
-- Why     Letters come last, as in every function that holds a partition or cursor and touches
--         letters; nothing waits after they are deleted. A push in vain is rolled back. A letter is
--         one group's: the others, which have or had the message, pass over its second copy. A
--         target that the group does not read delivers to all groups. The cursors are held from
--         before the push, which wakes those that are idle: no claim takes a message that is about
--         to be passed over. A group that subscribes or seeks back later reads the log as it is.
create function skep.redrive_letters(
  p_letter_id bigint[], p_partition_id bigint[], p_key bytea[], p_envelope bytea[],
  p_redrive_id uuid, p_owner uuid, p_position bigint, p_for_all boolean default true)
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
  v_read_partition bigint[];         -- the cursors of the targets
  v_read_group integer[];
  v_run record;
begin
  if p_redrive_id is not null then
    perform 1 from skep.redrive r
    where r.id = p_redrive_id and r.owner = p_owner and r.state = 'running' for no key update;
    if not found then
      return;
    end if;
  end if;

  perform skep.lock_partitions(v_target);
  if not p_for_all then
    select array_agg(c.partition_id), array_agg(c.group_id)
    into v_read_partition, v_read_group
    from skep.cursor c where c.partition_id = any(v_target);
    perform skep.lock_cursors(v_read_partition, v_read_group);
  end if;
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

  for v_run in
    select m.partition_id, min(m.at) as first, max(m.at) as last,
           (select array_agg(r.group_id) from unnest(v_read_partition, v_read_group)
              r(partition_id, group_id)
            where r.partition_id = m.partition_id and r.group_id <> m.group_id) as others
    from (
      select t.partition_id, d.group_id, t.at,
             t.at - row_number() over (partition by t.partition_id, d.group_id order by t.at)
               as run
      from unnest(v_letter_id, v_to_partition, v_to_offset) t(id, partition_id, at)
      join skep.dead_letter d on d.id = t.id and t.id = any(v_moved)
      where (t.partition_id, d.group_id) in (
        select r.partition_id, r.group_id from unnest(v_read_partition, v_read_group)
          r(partition_id, group_id))
    ) m
    group by m.partition_id, m.group_id, m.run
    order by m.partition_id, min(m.at)
  loop
    perform skep.pass_cursors(
      v_run.partition_id, v_run.others, v_run.first, v_run.last, skep.now());
  end loop;

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
