-- commit_sink: move what an epoch (a micro-batch of a stream) has staged into the log, once.
-- Takes   p_is_passing: it will not be asked for again. p_attempt: the successful attempts, one per
--         task. p_staged: rows they staged in all. p_findings: as drop_staged_duplicates. p_target:
--         what the write is recorded for; empty for whatever it writes to.
-- Returns one row: is_repeated (the epoch was committed before, nothing was done); else how many
--         messages were stored, scheduled, found to be duplicates, and rejected.
-- Raises  SK404 if staged rows are gone. SK409, SK429 as check_staged_rules.
-- Locks   the skep.sink row and what the write staged; then as staged_partitions; then idle
--         skep.cursor rows in (partition_id, group_id) order.
-- Model   Positions!CommitSink
-- Why     Messages and the record of the epoch share one transaction: a driver that comes back
--         repeats its last epoch, which is recognised here. What other attempts staged is deleted
--         with it. Writes into several queues may share a name and an epoch, so the record is of
--         write and target; one without a target covers all of them.
create function skep.commit_sink(
  p_write_id text, p_epoch bigint, p_is_passing boolean, p_attempt bigint[], p_staged bigint,
  p_findings json default null, p_target text default '')
returns table (
  is_repeated boolean, messages bigint, scheduled bigint, duplicates bigint, rejected bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_found bigint;
  v_partition_id bigint[];
  v_queue text[];
  v_partition text[];
  v_window_s integer[];
  v_is_repeated boolean;
  v_messages bigint;
  v_scheduled bigint;
  v_duplicates bigint;
  v_rejected bigint;
begin
  insert into skep.sink (write_id, target, epoch, is_passing, committed_at)
  values (p_write_id, p_target, p_epoch - 1, p_is_passing, skep.now())
  on conflict (write_id, target) do nothing;
  perform 1 from skep.sink k
  where k.write_id = p_write_id and k.target = p_target for no key update;
  v_is_repeated := skep.committed_epoch(p_write_id, p_target) >= p_epoch;
  if v_is_repeated then
    perform skep.discard_staging(p_write_id, p_epoch, p_target);
    return query select true, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
    return;
  end if;

  v_found := skep.hold_staging(p_write_id, p_epoch, p_attempt);
  if v_found <> p_staged then
    raise exception using errcode = 'SK404',
      message = format('%s of %s staged rows are gone', p_staged - v_found, p_staged);
  end if;

  select array_agg(l.partition_id order by l.partition_id),
         array_agg(l.queue order by l.partition_id),
         array_agg(l.partition order by l.partition_id),
         array_agg(l.window_s order by l.partition_id)
  into v_partition_id, v_queue, v_partition, v_window_s
  from skep.staged_partitions(p_write_id, p_epoch, p_attempt) l;
  perform skep.check_staged_rules(p_write_id, p_epoch, p_attempt);
  v_now := skep.now();  -- the locks may have been waited for

  v_duplicates := skep.drop_staged_duplicates(
    p_write_id, p_epoch, p_attempt, v_partition_id, v_queue, v_partition, v_window_s, v_now,
    p_findings);
  v_messages := skep.append_staged(p_write_id, p_epoch, p_attempt, v_partition_id, v_now);
  select w.scheduled, w.duplicates + v_duplicates into v_scheduled, v_duplicates
  from skep.schedule_staged(p_write_id, p_epoch, p_attempt, v_now) w;
  v_rejected := skep.bury_staged(
    p_write_id, p_epoch, p_attempt, v_partition_id, v_queue, v_partition, v_now);

  update skep.sink k
  set epoch = p_epoch, committed_at = v_now, messages = k.messages + v_messages,
      scheduled = k.scheduled + v_scheduled, duplicates = k.duplicates + v_duplicates,
      rejected = k.rejected + v_rejected
  where k.write_id = p_write_id and k.target = p_target;
  perform skep.discard_staging(p_write_id, p_epoch, p_target);
  return query select false, v_messages, v_scheduled, v_duplicates, v_rejected;
end $$;
