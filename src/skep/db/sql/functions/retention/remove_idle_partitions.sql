-- remove_idle_partitions: remove empty partitions without recent pushes. One step of a run.
-- Takes   as apply_retention. p_look: partitions to look at. p_idle_s: seconds without a push.
-- Returns one row: partitions removed; reached: the last id looked at.
-- Raises  SK423 as assert_leadership.
-- Locks   skep.queue rows for share, in id order; then the skep.partition rows to remove for
--         update, in id order, skipping locked ones; then the history rows; then as
--         drop_partitions.
-- Why     A walk by id, some thousand at a time: an index on pushed_at would be written by every
--         push. Each partition is checked again under its lock, so a push is seen here or finds the
--         partition gone and creates a new one, where offsets begin at 1 and every group has a
--         cursor at 0: nothing is skipped or served twice. The lock on the queue keeps a group from
--         subscribing meanwhile, whose cursor would be left behind. Partitions with dead letters
--         stay, because letters name them, and so does Default.
create function skep.remove_idle_partitions(
  p_service text, p_holder uuid, p_run_id uuid, p_after bigint, p_look integer, p_idle_s integer)
returns table (partitions bigint, reached bigint, is_done boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  v_started constant timestamptz := skep.now();
  v_cutoff constant timestamptz := v_started - make_interval(secs => p_idle_s);
  v_queue_ids integer[];
  v_ids bigint[];
  v_seen bigint;
  v_queue record;
begin
  perform skep.assert_leadership(p_service, p_holder);
  select count(*), max(l.id),
         array_agg(l.id) filter (where l.is_idle),
         array_agg(distinct l.queue_id) filter (where l.is_idle)
  into v_seen, reached, v_ids, v_queue_ids
  from (
    select p.id, p.queue_id,
           p.head < p.tail and greatest(p.pushed_at, p.created_at) < v_cutoff
           and p.deferred_pushes = 0 and p.name <> 'Default' as is_idle
    from skep.partition p where p.id > p_after order by p.id limit p_look
  ) l;
  reached := coalesce(reached, p_after);
  is_done := v_seen < p_look;
  partitions := 0;

  perform 1 from unnest(v_queue_ids) i(id)
  cross join lateral (select 1 from skep.queue q where q.id = i.id for share) q;
  select array_agg(l.id) into v_ids
  from (
    select p.id from unnest(v_ids) i(id)
    cross join lateral (
      select p.id from skep.partition p
      where p.id = i.id and p.head < p.tail and greatest(p.pushed_at, p.created_at) < v_cutoff
        and p.deferred_pushes = 0
        and not exists (select from skep.dead_letter d where d.partition_id = i.id)
      for update skip locked
    ) p
  ) l;
  for v_queue in
    select p.queue_id as id, count(*) as partitions
    from unnest(v_ids) i(id) join skep.partition p on p.id = i.id
    group by p.queue_id order by 1
  loop
    perform skep.record_removal(
      p_run_id, v_queue.id, 'partition', 0, 0, v_queue.partitions, v_started);
    partitions := partitions + v_queue.partitions;
  end loop;
  perform skep.drop_partitions(v_ids);
  return next;
end $$;
