-- count_messages: count the messages of queues, exactly while that is cheap, otherwise by a sample.
-- Takes   p_partitions_max: partitions to count in all. p_sample: partitions to look at in queues
--         that are not counted. p_is_sum: only the total over all queues is wanted.
-- Returns per queue: partitions (always exact), the rest as partition_counts.
-- Why     A page of queues may stand for millions of partitions. Small queues are counted first, so
--         that a large one never makes them inexact; for a total that will be inexact anyway,
--         nothing is counted. Dead letters are counted in their own index, up to a bound.
create function skep.count_messages(
  p_queue_id integer[], p_partitions_max integer, p_sample integer, p_is_sum boolean)
returns table (
  queue_id integer, partitions bigint, total bigint, pending bigint, processing bigint,
  failed bigint, dead_letters bigint, is_estimate boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  c_dead_letters_max constant integer := 100000;
  v_queue integer[];
  v_partitions bigint[];
  v_is_large boolean[];
  v_partition bigint[];
begin
  select array_agg(n.id), array_agg(n.partitions), array_agg(n.up_to > p_partitions_max)
  into v_queue, v_partitions, v_is_large
  from (
    select c.id, c.partitions,
           case when p_is_sum then sum(c.partitions) over ()
                else sum(c.partitions) over (order by c.partitions, c.id) end as up_to
    from (
      select q.id, coalesce(p.partitions, 0) as partitions
      from unnest(p_queue_id) q(id)
      left join (
        select p.queue_id, count(*) as partitions from skep.partition p
        where p.queue_id = any(p_queue_id) group by p.queue_id
      ) p on p.queue_id = q.id
    ) c
  ) n;

  select array_agg(l.id) into v_partition
  from (
    select p.id
    from unnest(v_queue, v_is_large) q(id, is_large)
    join skep.partition p on p.queue_id = q.id
    where not q.is_large
    union all
    select s.partition_id
    from (
      select array_agg(q.id) as large
      from unnest(v_queue, v_is_large) q(id, is_large) where q.is_large
    ) q
    cross join lateral skep.sample_partitions(q.large, p_sample) s
    where q.large is not null
  ) l;

  return query
  select q.id, q.partitions,
         round(c.total * s.scale)::bigint, round(c.pending * s.scale)::bigint,
         round(c.processing * s.scale)::bigint, round(c.failed * s.scale)::bigint,
         d.count, q.is_large or d.count = c_dead_letters_max
  from unnest(v_queue, v_partitions, v_is_large) q(id, partitions, is_large)
  left join (
    select l.queue_id, count(*) as partitions, sum(l.total) as total, sum(l.pending) as pending,
           sum(l.processing) as processing, sum(l.failed) as failed
    from skep.partition_counts(v_partition) l
    group by l.queue_id
  ) l on l.queue_id = q.id
  cross join lateral (
    select coalesce(l.total, 0) as total, coalesce(l.pending, 0) as pending,
           coalesce(l.processing, 0) as processing, coalesce(l.failed, 0) as failed
  ) c
  cross join lateral (
    select case when q.is_large then q.partitions::numeric / greatest(l.partitions, 1)
                else 1 end as scale
  ) s
  cross join lateral (
    select count(*) from (
      select from skep.dead_letter d where d.queue_id = q.id limit c_dead_letters_max
    ) d
  ) d(count);
end $$;
