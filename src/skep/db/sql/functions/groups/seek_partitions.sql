-- seek_partitions: move a group's cursors in the next partitions of its queue.
-- Takes   p_from, p_limit: as page_partitions; p_to, p_moment: as aim_seek.
-- Returns one row: partitions (cursors moved), next_name as page_partitions.
-- Raises  SK404 if the group does not exist.
-- Locks   the skep.consumer_group row, if its start changes; then as seek_cursors.
-- Why     One step of a seek in a whole queue, in its own transaction, so that consumers and pushes
--         wait for a thousand partitions at most; repeating a step is harmless. A subscription due
--         to start later starts with the seek, also in new partitions; one to a future time delays
--         it.
create function skep.seek_partitions(
  p_group_id integer, p_from text, p_limit integer, p_to text, p_moment timestamptz)
returns table (partitions bigint, next_name text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_partition_id bigint[];
  v_starts_at timestamptz;
begin
  perform skep.assert_group(p_group_id);
  if p_to = 'timestamp' and p_moment > skep.now() then
    v_starts_at := p_moment;
  end if;
  update skep.consumer_group g
  set subscription_mode = 'timestamp', subscribed_from = coalesce(v_starts_at, skep.now())
  where g.id = p_group_id
    and (g.subscribed_from > skep.now() or v_starts_at is not null)
    and g.subscribed_from is distinct from v_starts_at;
  select l.partition_id, l.next_name into v_partition_id, next_name
  from skep.consumer_group g
  cross join lateral skep.page_partitions(g.queue_id, p_from, p_limit) l
  where g.id = p_group_id;

  select count(m.partition_id) into partitions
  from (
    select array_agg(a.partition_id) as ids, array_agg(a.target) as targets
    from skep.aim_seek(p_group_id, v_partition_id, p_to, p_moment, null) a
  ) a
  cross join lateral skep.seek_cursors(p_group_id, a.ids, a.targets, v_starts_at) m;
  return next;
end $$;
