-- forget_partitions: forget a group's progress in the next partitions of a queue.
-- Takes   p_is_kept: the subscription stays and its cursors start again; otherwise they are
--         deleted. p_from, p_limit: as page_partitions.
-- Returns one row: partitions (cursors forgotten), next_name as page_partitions.
-- Raises  SK404 if the subscription should stay and does not exist.
-- Locks   skep.cursor rows in (partition_id, group_id) order, waiting.
-- Why     One step of deleting a group; see seek_partitions. A kept subscription moves its cursors:
--         a partition without one would be lost to the group. Its dead letters go as well.
create function skep.forget_partitions(
  p_queue_id integer, p_group_id integer, p_is_kept boolean, p_from text, p_limit integer)
returns table (partitions bigint, next_name text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_partition_id bigint[];
begin
  select l.partition_id, l.next_name into v_partition_id, next_name
  from skep.page_partitions(p_queue_id, p_from, p_limit) l;
  if p_is_kept then
    perform skep.assert_group(p_group_id);
    select count(*) into partitions
    from (
      select array_agg(a.partition_id) as ids, array_agg(a.target) as targets
      from skep.aim_seek(p_group_id, v_partition_id, 'subscription', null, null) a
    ) a
    cross join lateral skep.seek_cursors(p_group_id, a.ids, a.targets, (
      select g.subscribed_from from skep.consumer_group g where g.id = p_group_id)) m;
  else
    perform 1
    from unnest(v_partition_id) i(id)
    cross join lateral (
      select 1 from skep.cursor c
      where c.partition_id = i.id and c.group_id = p_group_id for update
    ) c;
    delete from skep.cursor c
    where c.partition_id = any(v_partition_id) and c.group_id = p_group_id;
    get diagnostics partitions = row_count;
  end if;

  delete from skep.dead_letter d
  where d.partition_id = any(v_partition_id) and d.group_id = p_group_id;
  return next;
end $$;
