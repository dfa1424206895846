/*
pass_cursors: move every cursor of partitions over messages that are about to go.

Takes   p_partition_id: ascending, no id twice. p_last: the last offset to go, in each.
Returns nothing.
Locks   the skep.cursor rows that are before it, in (partition_id, group_id) order; the caller
        holds the partitions.
Why     Most cursors are far ahead of what goes; only those that lag are touched, one by one.
*/
create function skep.pass_cursors(p_partition_id bigint[], p_last bigint[]) returns void
language sql as $$
  select skep.pass_cursor(i.id, k.group_id, i.last)
  from unnest(p_partition_id, p_last) i(id, last)
  cross join lateral (
    select k.group_id from skep.cursor k
    where k.partition_id = i.id and k.acked < i.last
    order by k.group_id
    for no key update
  ) k;
$$;
