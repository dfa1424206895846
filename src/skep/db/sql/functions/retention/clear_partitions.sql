-- clear_partitions: drop the messages of partitions, in small steps.
-- Takes   p_from: the name of the first partition. p_upto: the last offset to drop in it, if an
--         earlier call did not finish it, else null. p_is_alone: only that partition. p_partitions,
--         p_segments: limits of a call.
-- Returns one row: partitions (finished), messages (dropped), next_from and next_upto (where to go
--         on; next_from is null at the end), is_held: nothing was done, because an external reader
--         still needs some of the messages.
-- Locks   as held_from; as lock_partitions; then their skep.cursor rows in (partition_id, group_id)
--         order.
-- Why     The tail moves with the segments, so a partition is consistent after a crash. Messages
--         pushed after its turn began stay. A finished partition's cursors stand at its end without
--         leases; starts that lie ahead stay, and so do dead letters, which are copies. Keys go
--         with their segments: dropped messages may be pushed again, even inside the window. An
--         operator can release a hold first.
create function skep.clear_partitions(
  p_queue_id integer, p_from text, p_upto bigint, p_is_alone boolean, p_partitions integer,
  p_segments integer)
returns table (
  partitions integer, messages bigint, next_from text, next_upto bigint, is_held boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_id bigint[];
  v_name text[];
  v_left integer := p_segments;
  v_held_from constant xid8 := skep.held_from(p_queue_id);
  v_partition skep.partition;
  v_upto bigint;
  v_tail bigint;
  v_segments integer;
  v_last bigint;
  v_deleted integer;
begin
  partitions := 0; messages := 0; is_held := false;
  select array_agg(l.id order by l.name), array_agg(l.name order by l.name) into v_id, v_name
  from (
    -- One more than needed tells where to go on.
    select p.id, p.name from skep.partition p
    where p.queue_id = p_queue_id and p.name >= p_from
    order by p.name limit case when p_is_alone then 1 else p_partitions + 1 end
  ) l;
  if p_is_alone and v_name[1] <> p_from then
    v_id := null;
  end if;
  if exists (
    select from skep.segment s
    where s.queue_id = p_queue_id and s.xid >= v_held_from
      and (not p_is_alone or s.partition_id = v_id[1])
  ) then
    is_held := true;
    return next;
    return;
  end if;
  perform skep.lock_partitions(v_id[1:p_partitions]);
  perform 1 from skep.cursor c where c.partition_id = any(v_id[1:p_partitions])
  order by c.partition_id, c.group_id for no key update;

  for i in 1 .. least(coalesce(cardinality(v_id), 0), p_partitions) loop
    select * into strict v_partition from skep.partition p where p.id = v_id[i];
    v_upto := coalesce(case when i = 1 then p_upto end, v_partition.head);
    with gone as (
      delete from skep.segment s using (
        select s.first from skep.segment s
        where s.partition_id = v_id[i] and s.last <= v_upto order by s.first limit v_left
      ) d
      where s.partition_id = v_id[i] and s.first = d.first
      returning s.last
    )
    select count(*), max(g.last) into v_segments, v_last from gone g;
    v_tail := greatest(
      v_partition.tail, case when v_segments < v_left then v_upto else v_last end + 1);
    delete from skep.deleted_message d
    where d.partition_id = v_id[i] and d.message_offset < v_tail;
    get diagnostics v_deleted = row_count;
    update skep.partition p set tail = v_tail where p.id = v_id[i] and p.tail <> v_tail;
    messages := messages + v_tail - v_partition.tail - v_deleted;
    v_left := v_left - v_segments;
    if v_tail <= v_upto then
      -- Its cursors stay: readers never look below the tail.
      next_from := v_name[i]; next_upto := v_upto;
      return next;
      return;
    end if;
    perform skep.pass_cursors(
      v_id[i], array(select c.group_id from skep.cursor c where c.partition_id = v_id[i]),
      1, v_upto, skep.now());
    -- Claims end, also those that could still be undone: what they hold is gone.
    update skep.cursor c
    set leased = null, leased_from = null, unanswered = 0, nacked = null, retry_at = null,
        available_at = case when c.acked < v_partition.head then skep.now() end
    where c.partition_id = v_id[i];
    partitions := partitions + 1;
  end loop;
  next_from := v_name[p_partitions + 1];
  return next;
end $$;
