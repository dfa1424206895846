-- offset_before: the last offset of a partition that was pushed before a moment.
-- Takes   p_after, p_to: search only (p_after, p_to]; null: everything kept.
-- Returns the offset; p_after, or the offset before the first kept message, if all are younger.
-- Why     created_at never decreases along a partition, so a binary search works: there may be
--         millions of messages on either side. The ends are tried first, because most partitions
--         lie on one side. A segment that retention deletes meanwhile counts as old.
create function skep.offset_before(
  p_partition_id bigint, p_moment timestamptz, p_after bigint default null,
  p_to bigint default null) returns bigint
language plpgsql stable as $$
declare
  v_low bigint;                      -- everything up to here is older
  v_high bigint;                     -- everything behind here is not
  v_at bigint;
  v_step integer := 0;
  v_segment record;
begin
  select coalesce(p_after, p.tail - 1), coalesce(p_to, p.head) into v_low, v_high
  from skep.partition p where p.id = p_partition_id;
  while v_low < v_high loop
    v_at := case v_step when 0 then v_high when 1 then v_low + 1
                        else v_low + (v_high - v_low + 1) / 2 end;
    v_step := v_step + 1;
    select s.first, s.last, s.created_at into v_segment
    from skep.segment s
    where s.partition_id = p_partition_id and s.first <= v_at
    order by s.first desc limit 1;
    if v_segment.created_at >= p_moment and v_segment.last >= v_at then
      v_high := greatest(v_segment.first - 1, v_low);
    else
      v_low := greatest(v_at, least(v_segment.last, v_high));
    end if;
  end loop;
  return v_low;
end $$;
