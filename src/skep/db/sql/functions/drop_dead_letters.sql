/*
drop_dead_letters: forget all that died in a queue, or of one of its groups.

Takes   p_queue_id; p_group_id, null for every group.
Returns how many dead letters there were. The records of redriven ones go as well.
Locks   skep.dead_letter rows in id order. Whoever deletes a queue or a group calls this after
        locking its partitions and cursors.
Why     Letters name their queue and group by id; without those they could neither be listed by
        name nor be redriven.
*/
create function skep.drop_dead_letters(p_queue_id integer, p_group_id integer default null)
returns bigint
language plpgsql as $$
declare
  v_count bigint;
begin
  delete from skep.redriven_letter r
  where r.queue_id = p_queue_id and (p_group_id is null or r.group_id = p_group_id);
  delete from skep.dead_letter d
  where d.id in (
    select l.id from skep.dead_letter l
    where l.queue_id = p_queue_id and (p_group_id is null or l.group_id = p_group_id)
    order by l.id for update
  );
  get diagnostics v_count = row_count;
  return v_count;
end $$;
