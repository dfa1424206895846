/*
remove_idle_partitions: remove partitions that hold nothing and got nothing for long. One step of a run.

Takes   p_service, p_holder, p_run_id: as apply_retention. p_after: reached of the step before, 0
        to begin. p_look: partitions to look at. p_idle_s: how long nothing was pushed.
Returns one row: partitions removed; reached, the last id looked at; is_done, there is none beyond.
Raises  SK423 as assert_leadership.
Locks   skep.queue rows for share, in id order; then the skep.partition rows to go for update, in
        id order, skipping locked ones; then their cursors; shards of streams as
        drop_stream_state; then the history rows.
Why     A walk by id, some thousand partitions at a time: an index on pushed_at would be written by
        every push. A partition is looked at again under its lock, so that a push is either seen here
        or finds the partition gone and makes a new one: there offsets begin at 1, every group of the
        queue has a cursor at 0, and nothing is skipped or served twice. The lock on the queue
        keeps a group from subscribing meanwhile, whose cursor would be left behind. Partitions with
        dead letters stay, for these name them, and so does 'Default', which a queue is born with.
*/
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
  delete from skep.cursor c using unnest(v_ids) i(id) where c.partition_id = any(array[i.id]);
  delete from skep.deleted_message d using unnest(v_ids) i(id)
  where d.partition_id = any(array[i.id]);
  perform skep.drop_stream_state(v_ids);
  for v_queue in
    with gone as (
      delete from skep.partition p using unnest(v_ids) i(id) where p.id = any(array[i.id])
      returning p.queue_id
    )
    select g.queue_id as id, count(*) as partitions from gone g group by g.queue_id order by 1
  loop
    perform skep.record_removal(
      p_run_id, v_queue.id, 'partition', 0, 0, v_queue.partitions, v_started);
    partitions := partitions + v_queue.partitions;
  end loop;
  return next;
end $$;
