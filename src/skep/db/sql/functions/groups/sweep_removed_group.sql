-- sweep_removed_group: delete some cursors of a removed group.
-- Takes   p_group_id: null for one removed over a minute ago, which its session did not sweep.
-- Returns one row: partitions (cursors deleted), has_more (call again).
-- Locks   the skep.removed_group row for update (skipping locked ones without p_group_id); then as
--         forget_partitions.
-- Why     Small transactions: others wait briefly, and after a crash the next call goes on.
create function skep.sweep_removed_group(p_group_id integer, p_partitions integer)
returns table (partitions bigint, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_removed skep.removed_group;
  v_next text;
begin
  if p_group_id is not null then
    select * into v_removed from skep.removed_group r where r.group_id = p_group_id for update;
  else
    select * into v_removed from skep.removed_group r
    where r.removed_at < skep.now() - interval '1 minute'
    order by r.removed_at limit 1
    for update skip locked;
  end if;
  if v_removed.group_id is null then
    return query select 0::bigint, false;
    return;
  end if;

  select f.partitions, f.next_name into partitions, v_next
  from skep.forget_partitions(
    v_removed.queue_id, v_removed.group_id, false, v_removed.next_name, p_partitions) f;
  if v_next is null then
    delete from skep.removed_group r where r.group_id = v_removed.group_id;
  else
    update skep.removed_group r set next_name = v_next where r.group_id = v_removed.group_id;
  end if;
  has_more := v_next is not null or p_group_id is null;
  return next;
end $$;
