-- sample_partitions: choose partitions that represent large queues.
-- Takes   p_partitions: roughly how many in all.
-- Returns partition ids, of each queue in proportion to its size.
-- Why     Random pages cost the same however large the table, and need no index. The sample is
--         repeatable, so numbers change only because messages do. A queue with a small share is
--         represented by its first partitions.
create function skep.sample_partitions(p_queue_id integer[], p_partitions integer)
returns table (partition_id bigint)
language plpgsql stable as $$
#variable_conflict use_column
declare
  c_partitions_per_page constant integer := 60;
  v_partitions_min constant integer :=
    least(100, greatest(p_partitions / cardinality(p_queue_id), 1));
  v_pages constant bigint :=
    pg_relation_size('skep.partition') / current_setting('block_size')::integer;
  v_percent constant real := least(
    100, greatest(100.0 * p_partitions / c_partitions_per_page, 100) / greatest(v_pages, 1));
begin
  return query
  with sampled as materialized (
    select p.id, p.queue_id from skep.partition p tablesample system (v_percent) repeatable (1)
    where p.queue_id = any(p_queue_id)
  ),
  sparse as (
    select q.id from unnest(p_queue_id) q(id)
    left join sampled s on s.queue_id = q.id
    group by q.id
    having count(s.id) < v_partitions_min
  )
  select s.id from sampled s where s.queue_id not in (select q.id from sparse q)
  union all
  select p.id from sparse q
  cross join lateral (
    select p.id from skep.partition p where p.queue_id = q.id order by p.name limit v_partitions_min
  ) p;
end $$;
