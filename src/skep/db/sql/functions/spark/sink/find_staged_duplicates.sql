-- find_staged_duplicates: compare the keys of staged segments with those of their partitions.
-- Takes   the staging. Per partition: p_upto: messages up to this offset are not compared;
--         p_is_checked: nor are the staged keys with each other.
-- Returns per segment with duplicates: attempt, number, indexes (0-based).
-- Locks   none; the caller holds the partitions.
-- Why     A push probes segment by segment. Here a partition gets hundreds of segments, so all keys
--         of all partitions are compared at once, with the window and with each other; of equal
--         transaction ids the first stays. Generated ids are not compared. `|| ''` detoasts keys
--         once, not per key. Staging has no statistics: without the settings a plan may compare
--         every key with every other.
create function skep.find_staged_duplicates(
  p_write_id text, p_epoch bigint, p_attempt bigint[], p_partition_id bigint[], p_queue text[],
  p_partition text[], p_upto bigint[], p_is_checked boolean[])
returns table (attempt bigint, number integer, indexes integer[])
language sql stable
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '64MB'
as $$
  with target as materialized (
    select l.* from unnest(p_partition_id, p_queue, p_partition, p_upto, p_is_checked)
      l(id, queue, partition, upto, is_checked)
  ),
  given as materialized (
    select s.id, s.is_checked, s.task, s.attempt, s.number, g.index,
           substr(s.keys, g.index * 16 + 1, 16) as key
    from (
      select l.id, l.is_checked, s.task, s.attempt, s.number, s.messages,
             b.keys || ''::bytea as keys
      from skep.staged_segment s
      join target l on l.queue = s.queue and l.partition = s.partition
      cross join lateral (
        select b.keys from skep.segment b
        where b.partition_id = -s.attempt and b.first = s.number offset 0
      ) b
      where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
        and not s.is_unique
      offset 0
    ) s
    cross join lateral generate_series(0, s.messages - 1) g(index)
  ),
  stored as materialized (
    select s.id, substr(s.keys, g.index * 16 + 1, 16) as key
    from (
      select l.id, s.last - s.first as last_index, s.keys || ''::bytea as keys
      from target l
      cross join lateral (
        select s.first, s.last, s.keys from skep.segment s
        where s.partition_id = l.id and s.first > l.upto offset 0
      ) s
      where l.id in (select n.id from given n)
      offset 0
    ) s
    cross join lateral generate_series(0, s.last_index::integer) g(index)
  ),
  repeated as (
    select n.attempt, n.number, n.index,
           row_number() over (partition by n.id, n.key order by n.task, n.number, n.index) as turn
    from given n
    join (
      select g.id, g.key from given g where not g.is_checked
      group by g.id, g.key having count(*) > 1
    ) r on r.id = n.id and r.key = n.key
  ),
  duplicate as (
    select r.attempt, r.number, r.index from repeated r where r.turn > 1
    union
    select n.attempt, n.number, n.index from given n join stored o on o.id = n.id and o.key = n.key
  )
  select d.attempt, d.number, array_agg(d.index) from duplicate d group by d.attempt, d.number;
$$;
