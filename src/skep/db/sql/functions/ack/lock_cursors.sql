-- lock_cursors: lock cursors in the global order.
-- Takes   pairs in any order; a pair may repeat. Pairs without a cursor are ignored.
-- Locks   skep.cursor rows for no key update, in (partition_id, group_id) order, waiting.
-- Why     Functions that wait for cursors lock all of them here before they read one.
create function skep.lock_cursors(p_partition_id bigint[], p_group_id integer[]) returns void
language plpgsql as $$
begin
  perform 1
  from (
    select distinct u.* from unnest(p_partition_id, p_group_id) u(partition_id, group_id)
    order by u.partition_id, u.group_id
  ) i
  cross join lateral (
    select 1 from skep.cursor c
    where c.partition_id = i.partition_id and c.group_id = i.group_id for no key update
  ) c;
end $$;
