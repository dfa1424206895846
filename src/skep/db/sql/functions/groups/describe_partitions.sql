-- describe_partitions: progress of groups in each of their partitions, by page.
-- Takes   p_limit, p_offset: counted over the partitions of all groups.
-- Returns by group, then partition name; acked (at least tail - 1), lag_s (age of the first unread
--         message), lease_id (null unless leased now), failing (messages recorded as failed).
-- Why     A page costs what it shows, plus one index step per partition before it. For the laterals
--         see push_segments.
create function skep.describe_partitions(p_group_id integer[], p_limit integer, p_offset integer)
returns table (
  group_id integer, partition_id bigint, partition_name text, head bigint, tail bigint,
  acked bigint, backlog bigint, lag_s bigint, lease_id uuid, failing integer)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_left integer := p_limit;
  v_skip integer := p_offset;
  v_shown integer;
  v_group skep.consumer_group;
begin
  for v_group in
    select g.* from unnest(p_group_id) with ordinality i(id, place)
    join skep.consumer_group g on g.id = i.id
    order by i.place
  loop
    return query
    select c.group_id, p.id, p.name, p.head, p.tail, greatest(c.acked, p.tail - 1), b.backlog,
           case when b.backlog > 0
             then skep.age_s((
               select s.created_at from skep.segment s
               where s.partition_id = p.id and s.first <= greatest(c.acked + 1, p.tail)
               order by s.first desc limit 1), v_now)
             else 0 end,
           case when c.leased is not null and c.available_at > v_now then c.lease_id end,
           coalesce(cardinality(c.failed_offset), 0)
    from (
      select p.id, p.name, p.head, p.tail from skep.partition p
      where p.queue_id = v_group.queue_id
      order by p.name limit v_left offset v_skip
    ) p
    cross join lateral (
      select c.* from skep.cursor c
      where c.partition_id = p.id and c.group_id = v_group.id offset 0
    ) c
    cross join lateral (
      select skep.partition_backlog(p.head, p.tail, c.acked, c.done) as backlog
    ) b
    order by p.name;
    get diagnostics v_shown = row_count;

    v_left := v_left - v_shown;
    exit when v_left = 0;
    if v_shown = 0 and v_skip > 0 then
      select v_skip - count(*) into v_skip
      from (
        select 1 from skep.partition p where p.queue_id = v_group.queue_id limit v_skip
      ) passed;
    else
      v_skip := 0;
    end if;
  end loop;
end $$;
