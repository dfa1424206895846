-- list_partitions: one page of partitions and their counts.
-- Takes   p_queue_id: null for all queues. p_search: part of the name, case-insensitive, or null.
--         p_after: begin behind this partition, or null.
-- Returns by queue and name, as partition_counts; oldest_at: the time of the oldest message.
-- Why     The order is that of the name index, so a page costs what it shows (by p_after) or also
--         what it skips (by offset). Only a search reads names it does not show.
create function skep.list_partitions(
  p_queue_id integer, p_search text, p_after bigint, p_limit integer, p_offset integer)
returns table (
  id bigint, queue_id integer, name text, head bigint, tail bigint, created_at timestamptz,
  pushed_at timestamptz, total bigint, pending bigint, processing bigint, failed bigint,
  queue_name text, dead_letters bigint, oldest_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
  -- Before all partitions: no queue has id 0, and no partition an empty name.
  v_after_queue integer := 0;
  v_after_name text := '';
  v_page bigint[];
begin
  if p_after is not null then
    select p.queue_id, p.name into v_after_queue, v_after_name
    from skep.partition p where p.id = p_after and p.queue_id = coalesce(p_queue_id, p.queue_id);
    if not found then
      return;
    end if;
  end if;

  -- Two statements, because one for both cases could not use the index for the order.
  if p_queue_id is not null then
    select array_agg(l.id) into v_page
    from (
      select p.id from skep.partition p
      where p.queue_id = p_queue_id
        and p.name > v_after_name
        and (p_search is null or position(lower(p_search) in lower(p.name)) > 0)
      order by p.name
      limit p_limit offset p_offset
    ) l;
  else
    select array_agg(l.id) into v_page
    from (
      select p.id from skep.partition p
      where (p.queue_id, p.name) > (v_after_queue, v_after_name)
        and (p_search is null or position(lower(p_search) in lower(p.name)) > 0)
        and exists (select from skep.queue q where q.id = p.queue_id)
      order by p.queue_id, p.name
      limit p_limit offset p_offset
    ) l;
  end if;

  return query
  select l.id, l.queue_id, l.name, l.head, l.tail, l.created_at, l.pushed_at, l.total, l.pending,
         l.processing, l.failed, q.name, d.count, s.created_at
  from skep.partition_counts(v_page) l
  join skep.queue q on q.id = l.queue_id
  left join lateral (
    select s.created_at from skep.segment s
    where s.partition_id = l.id and s.last >= l.tail
    order by s.first limit 1
  ) s on true
  cross join lateral (
    select count(*) from skep.dead_letter d where d.partition_id = l.id
  ) d(count)
  order by l.queue_id, l.name;
end $$;
