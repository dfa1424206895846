-- staged_keys: the keys of an epoch that a driver must compare.
-- Takes   the staging. p_queue, p_partition: only partitions behind this one in name order; empty
--         to begin. p_limit: keys.
-- Returns per staged segment, by partition, task and number; partition_id is null if it does not
--         exist yet. Partitions come whole, as many as fit; those larger than p_limit are left out.
-- Why     Generated ids and queues without a window need no comparison. What is left out here is
--         compared by drop_staged_duplicates.
create function skep.staged_keys(
  p_write_id text, p_epoch bigint, p_attempt bigint[], p_queue text, p_partition text,
  p_limit bigint)
returns table (
  queue text, partition text, partition_id bigint, attempt bigint, number integer, keys bytea)
language sql stable as $$
  select s.queue, s.partition, p.id, s.attempt, s.number, b.keys
  from (
    -- Rows of a partition are peers in this order, so the running total counts them at once.
    select s.*, sum(s.messages) over (order by s.queue, s.partition) as total
    from (
      select s.*, q.id as queue_id,
             sum(s.messages) over (partition by s.queue, s.partition) as of_partition
      from skep.staged_segment s
      left join lateral (
        select q.id, q.dedup_window_s from skep.queue q where q.name = s.queue offset 0
      ) q on true
      where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
        and not s.is_unique and (s.queue, s.partition) > (p_queue, p_partition)
        and (q.id is null or q.dedup_window_s > 0)
    ) s
    where s.of_partition <= p_limit
  ) s
  left join lateral (
    select p.id from skep.partition p
    where p.queue_id = s.queue_id and p.name = s.partition offset 0
  ) p on true
  cross join lateral (
    select b.keys from skep.segment b
    where b.partition_id = -s.attempt and b.first = s.number offset 0
  ) b
  where s.total <= p_limit
  order by s.queue, s.partition, s.task, s.number;
$$;
