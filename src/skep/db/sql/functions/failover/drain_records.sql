-- drain_records: store the messages of a part of a spill file and record that it is drained.
-- Takes   p_file_id, p_from, p_to: the part. p_resolve: a lost call may have stored the messages
--         before they were spilled, above guaranteed_to, whatever the window. p_partition_id to
--         p_envelope as push_distinct. p_queue_id, p_version as push_segments. p_later_*: scheduled
--         messages as schedule_messages.
-- Returns first a row with the position up to which the file is drained; if it is not p_to, an
--         earlier call got further or less far than the caller assumed, and nothing was done. Then
--         one row per partition: partition, stored_item and duplicate_item (1-based positions of
--         its messages), first and created_at of what was stored, gap_* as push_segments.
-- Raises  SK409 if a queue was reconfigured; P0002 if a partition or queue is gone; 55P03 while
--         deferred operations, accepted before the messages were spilled, wait for a partition.
-- Locks   the skep.drained_file row; then all partitions and cursors as push_segments.
-- Model   Failover!Drain
-- Why     Duplicates are found inside the queue's window only, and a spilled message may be older
--         when it comes a second time, after a crash or a lost answer. So progress is written in
--         the same transaction, and a drained part is never drained again.
create function skep.drain_records(
  p_file_id uuid, p_from bigint, p_to bigint, p_resolve boolean,
  p_partition_id bigint[], p_guaranteed_to bigint[], p_guaranteed_since timestamptz[],
  p_partition integer[], p_key bytea[], p_envelope bytea[],
  p_queue_id integer[], p_version integer[],
  p_later_queue_id integer[], p_later_partition text[], p_later_key bytea[],
  p_later_transaction_id text[], p_later_envelope bytea[], p_later_deliver_at timestamptz[],
  p_later_nonce bigint[] default null)
returns table (
  "position" bigint, partition integer, stored_item integer[], first bigint, created_at timestamptz,
  duplicate_item integer[], gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_position bigint;
  v_pushed record;
begin
  insert into skep.drained_file (file_id, position, drained_at)
  values (p_file_id, p_from, skep.now())
  on conflict (file_id) do nothing;
  select d.position into strict v_position
  from skep.drained_file d where d.file_id = p_file_id for update;
  if v_position <> p_from then
    position := v_position;
    return next;
    return;
  end if;
  update skep.drained_file d set position = p_to, drained_at = skep.now()
  where d.file_id = p_file_id;
  position := p_to;
  return next;

  perform skep.check_rules(p_queue_id, p_version);
  if (
    select bool_or(p.deferred_pushes > 0)
    from unnest(p_partition_id) i(id)
    cross join lateral (
      select p.deferred_pushes from skep.partition p where p.id = i.id for no key update
    ) p
  ) then
    raise exception using errcode = '55P03', message = 'operations wait for a partition';
  end if;
  select * into strict v_pushed from skep.push_distinct(
    p_partition_id, p_guaranteed_to, p_guaranteed_since, p_partition, p_key, p_envelope,
    p_resolve);
  if array_position(v_pushed.push_offset, null) is not null then
    raise exception using errcode = 'P0002', message = 'a partition is gone';
  end if;
  return query
  select p_to, m.partition, m.stored_item, v_pushed.partition_first[m.partition],
         v_pushed.partition_created_at[m.partition], m.duplicate_item,
         v_pushed.gap_first[m.partition], v_pushed.gap_keys[m.partition],
         v_pushed.gap_created_at[m.partition]
  from (
    select u.partition,
           array_agg(u.item::integer order by u.item) filter (where not u.is_duplicate)
             as stored_item,
           array_agg(u.item::integer order by u.item) filter (where u.is_duplicate)
             as duplicate_item
    from unnest(p_partition, v_pushed.push_is_duplicate) with ordinality
           u(partition, is_duplicate, item)
    group by u.partition order by u.partition
  ) m;

  if cardinality(p_later_key) > 0 and exists (
    select from skep.schedule_messages(
      p_later_queue_id, p_later_partition, p_later_key, p_later_transaction_id, p_later_envelope,
      p_later_deliver_at, array_fill(null::double precision, array[cardinality(p_later_key)]),
      2147483647, true, p_later_nonce) s
    where s.outcome in ('again', 'gone'))
  then
    raise exception using errcode = 'P0002', message = 'a queue is gone';
  end if;
end $$;
