-- consume_messages: take messages of a queue in the calling transaction.
-- Takes   a new group begins with the oldest message. p_batch: messages, fewer
--         if they are more than 16 MiB. p_partitions: partitions.
-- Returns per segment as take_partitions.
-- Locks   as provision_group; then as pop_messages: cursors, and for share partitions that were
--         read to their end, until the transaction ends.
-- Why     A rollback returns the messages, a commit acknowledges them: results written in the same
--         transaction are exactly once, without leases. Pushes into a partition read to its end
--         wait for the transaction. Planned for full tables (ADR 0004).
create function skep.consume_messages(
  p_queue text, p_group text, p_batch integer, p_partitions integer)
returns table (
  partition_id bigint, partition_name text, taken_from bigint, taken_to bigint, delivery integer,
  first bigint, created_at timestamptz, body bytea, passed_over bigint[], counts bigint[])
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_group_id integer;
begin
  select g.group_id into v_group_id
  from skep.provision_group(p_queue, p_group, 'all', null) g;
  return query
  select m.partition_id, m.partition_name, m.taken_from, m.taken_to, m.delivery, m.first,
         m.created_at, m.body, m.passed_over, m.counts
  from skep.pop_messages(
    v_group_id, array[gen_random_uuid()], array[p_batch], array[p_partitions], array[true],
    array[0], true, 16777216) m
  where m.poll is not null;
end $$;
