-- sequence_staged: move staged messages into the log.
-- Takes   p_id: staged messages, ascending. p_id_partition: the number of each one's partition,
--         1-based; null to drop one that repeats another. p_queue_id, p_version: as check_rules.
--         The rest as push_segments.
-- Returns a row with partition 0, then per partition: partition (its number), and as push_segments.
--         Messages of a partition with duplicates stay staged and go again without those. No row if
--         another session has taken the messages.
-- Raises  SK409 if a queue was reconfigured or a partition is gone; nothing was changed.
-- Locks   as claim_staged; as push_segments; then as drop_staged.
-- Why     One transaction stores the messages and deletes the staged rows: they arrive once,
--         whatever crashes. One call for all partitions: a batch may have a message for each of a
--         thousand. Partition ids ascend, so width_bucket finds their numbers.
create function skep.sequence_staged(
  p_id bigint[], p_id_partition integer[], p_queue_id integer[], p_version integer[],
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[], p_keys bytea[], p_body bytea[],
  p_row_to integer[] default null, p_row_end integer[] default null)
returns table (
  partition integer, partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_is_stored boolean[] := array_fill(false, array[cardinality(p_partition_id)]);
  v_partitions integer := 0;
begin
  perform skep.check_rules(p_queue_id, p_version);
  if not skep.claim_staged(p_id) then
    return;
  end if;
  partition := 0;
  return next;
  for partition, partition_id, first, created_at, duplicate_index, duplicate_offset, gap_first,
      gap_keys, gap_created_at in
    select width_bucket(s.partition_id, p_partition_id), s.*
    from skep.push_segments(
      p_partition_id, p_count, p_guaranteed_to, p_guaranteed_since, p_keys, p_body, false,
      null, null, p_row_to, p_row_end) s
  loop
    v_partitions := v_partitions + 1;
    v_is_stored[partition] := first is not null;
    return next;
  end loop;
  if v_partitions < cardinality(p_partition_id) then
    raise exception using errcode = 'SK409', message = 'a queue was deleted meanwhile';
  end if;
  perform skep.drop_staged(array(
    select i.id from unnest(p_id, p_id_partition) i(id, partition)
    where i.partition is null or v_is_stored[i.partition]));
end $$;
