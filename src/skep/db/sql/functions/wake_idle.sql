/*
wake_idle: let groups know that there is something to read in lanes where they had read all.

Takes   p_partition_id: lanes that were pushed to, ascending; p_now.
Returns nothing.
Locks   idle skep.cursor rows in (partition_id, group_id) order. The caller holds the partitions of
        the lanes that matter; waking another one costs a poll, nothing else.
Why     Apart because every way to push ends with it. The cursors are updated by their place: the
        rows are locked, so they stay where they are.
*/
create function skep.wake_idle(p_partition_id bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_idle tid[];
begin
  select array_agg(k.place) into v_idle
  from unnest(p_partition_id) i(id)
  cross join lateral (
    select k.ctid as place from skep.cursor k
    where k.partition_id = i.id and k.available_at is null
    order by k.group_id
    for no key update
  ) k;
  if v_idle is not null then
    update skep.cursor c set available_at = p_now where c.ctid = any(v_idle);
  end if;
end $$;
