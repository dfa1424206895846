-- give_up_message: turn a message into a dead letter, for one group or all that wait for it.
-- Takes   p_group: null for every group that counts (counts_as_reader) and has not finished it.
-- Returns the names of the groups; none if all had finished it.
-- Locks   the skep.partition row, then skep.cursor rows in group order, for no key update.
-- Why     What a consumer does with status dlq, for operators. A lease does not stop it.
create function skep.give_up_message(
  p_partition_id bigint, p_offset bigint, p_group text, p_error text)
returns table (group_name text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_cursor record;
begin
  perform 1 from skep.partition p where p.id = p_partition_id for no key update;
  for v_cursor in
    select c.group_id, g.name
    from skep.cursor c join skep.consumer_group g on g.id = c.group_id
    where c.partition_id = p_partition_id
      and c.acked < p_offset and not coalesce(c.done, '{}') @> p_offset
      and case when p_group is not null then g.name = p_group
               else skep.counts_as_reader(g) end
    order by c.group_id for no key update of c
  loop
    perform skep.bury_messages(
      p_partition_id, v_cursor.group_id, array[p_offset], array[p_error], null, v_now);
    perform skep.pass_cursors(
      p_partition_id, array[v_cursor.group_id], p_offset, p_offset, v_now);
    group_name := v_cursor.name;
    return next;
  end loop;
end $$;
