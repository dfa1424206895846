-- clear_partitions: drop the messages of partitions, in small steps.
-- Takes   p_queue_id; p_from: the name of the first partition. p_upto: the last offset to drop in
--         it, if an earlier call did not finish it, else null. p_is_alone: only that partition.
--         p_partitions, p_segments: limits of a call.
-- Returns one row: partitions (finished), messages (dropped), next_from and next_upto (where to go
--         on; next_from is null at the end), is_held: nothing was done, because an external reader
--         still needs some of the messages.
-- Locks   skep.hold in share mode (held_from); then skep.partition rows for no key update, in id
--         order; then their skep.cursor rows in (partition_id, group_id) order.
-- Why     The tail moves with the segments, so a partition is consistent after a crash. Messages
--         pushed after its turn began stay. A finished partition's cursors stand at its end without
--         leases; dead letters are copies and stay. Keys go with their segments: dropped messages
--         may be pushed again, even inside the window. An operator who clears can release a hold
--         first.
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
  v_partitions integer := 0;
  v_messages bigint := 0;
  v_left integer := p_segments;
  v_held_from constant xid8 := skep.held_from(p_queue_id);
  v_cleared record;
begin
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
    return query select 0, 0::bigint, null::text, null::bigint, true;
    return;
  end if;
  perform 1 from skep.partition p where p.id = any(v_id[1:p_partitions])
  order by p.id for no key update;
  perform 1 from skep.cursor c where c.partition_id = any(v_id[1:p_partitions])
  order by c.partition_id, c.group_id for no key update;

  for i in 1 .. least(coalesce(cardinality(v_id), 0), p_partitions) loop
    select * into strict v_cleared
    from skep.clear_partition(v_id[i], case when i = 1 then p_upto end, v_left);
    v_messages := v_messages + v_cleared.messages;
    v_left := v_left - v_cleared.segments;
    if v_cleared.rest_upto is not null then
      return query select v_partitions, v_messages, v_name[i], v_cleared.rest_upto, false;
      return;
    end if;
    v_partitions := v_partitions + 1;
  end loop;
  return query select v_partitions, v_messages, v_name[p_partitions + 1], null::bigint, false;
end $$;
