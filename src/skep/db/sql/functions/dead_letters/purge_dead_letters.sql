-- purge_dead_letters: delete some expired dead letters. One step of a run.
-- Takes   as apply_retention. p_limit: letters to look at.
-- Returns how many were deleted.
-- Raises  SK423 as assert_leadership.
-- Locks   the deleted rows, skipping locked ones; then the history rows, by queue.
-- Why     Ids follow the order of failures closely enough: the walk begins at the oldest and ends
--         at the limit, so young letters are not read in bulk.
create function skep.purge_dead_letters(
  p_service text, p_holder uuid, p_run_id uuid, p_keep_s integer, p_limit integer)
returns bigint
language plpgsql as $$
declare
  v_started constant timestamptz := skep.now();
  v_queue record;
  v_total bigint := 0;
begin
  perform skep.assert_leadership(p_service, p_holder);
  for v_queue in
    with gone as (
      delete from skep.dead_letter d
      using (
        select o.id from (
          select d.id, d.failed_at from skep.dead_letter d order by d.id limit p_limit
          for update skip locked
        ) o
        where o.failed_at < v_started - make_interval(secs => p_keep_s)
      ) old
      where d.id = any(array[old.id])
      returning d.queue_id
    )
    select g.queue_id as id, count(*) as messages from gone g group by g.queue_id order by 1
  loop
    perform skep.record_removal(
      p_run_id, v_queue.id, 'dead_letter', v_queue.messages, 0, 0, v_started);
    v_total := v_total + v_queue.messages;
  end loop;
  return v_total;
end $$;
