-- seek_cursors: put the cursors of a group where a seek wants them, forwards or backwards.
-- Takes   p_acked: per partition, the last offset that counts as done. p_starts_at: deliver nothing
--         pushed before; ignored once it has passed.
-- Returns each cursor that exists, with its new acked.
-- Locks   as lock_cursors, then as expect_progress.
-- Why     A seek starts afresh: leases end, so that late acks are refused; failures, deliveries and
--         the former start are forgotten; above the cursor only deleted messages stay done. The
--         partition becomes ready, not idle: only a claim may set it idle, under the partition's
--         lock. p_acked is clamped to what the partition holds and skips deleted messages, because
--         a cursor never stands before a finished message. For the laterals see push_segments.
create function skep.seek_cursors(
  p_group_id integer, p_partition_id bigint[], p_acked bigint[],
  p_starts_at timestamptz default null)
returns table (partition_id bigint, acked bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  perform skep.lock_cursors(
    p_partition_id, array(select p_group_id from unnest(p_partition_id)));

  return query
  update skep.cursor c
  set acked = coalesce(upper(n.passed) - 1, n.acked),
      done = nullif(n.deleted - coalesce(int8multirange(n.passed), '{}'), '{}'),
      leased_from = null,
      leased = null,
      lease_id = null,
      delivered = 0,
      deliveries = 0,
      steps = null,
      unanswered = 0,
      nacked = null,
      retry_at = null,
      failed_offset = null,
      failed_count = null,
      starts_at = case when p_starts_at > skep.now() then p_starts_at end,
      available_at = skep.now()
  from (
    select k.place, t.acked, d.deleted,
           (select r from unnest(d.deleted) r where lower(r) = t.acked + 1) as passed
    from unnest(p_partition_id, p_acked) i(id, acked)
    cross join lateral (
      select k.ctid as place from skep.cursor k
      where k.partition_id = i.id and k.group_id = p_group_id offset 0
    ) k
    cross join lateral (
      select greatest(p.tail - 1, least(p.head, i.acked)) as acked
      from skep.partition p where p.id = i.id offset 0
    ) t
    cross join lateral (
      select range_agg(int8range(d.message_offset, d.message_offset, '[]')) as deleted
      from skep.deleted_message d
      where d.partition_id = i.id and d.message_offset > t.acked
    ) d
  ) n
  where c.ctid = n.place
  returning c.partition_id, c.acked;
  perform skep.expect_progress(array[p_group_id]);
end $$;
