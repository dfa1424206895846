-- clear_partition: drop the oldest messages of one partition.
-- Takes   p_partition_id; p_upto: the last offset to drop, null for the current head. p_segments:
--         how many segments.
-- Returns one row: segments and messages dropped; rest_upto: the p_upto to call again with, null if
--         finished.
-- Locks   none; the caller holds the partition and its cursors.
-- Why     See clear_partitions. Under the partition's lock a cursor at its head may become idle. An
--         unfinished partition keeps its cursors: readers never look below the tail.
create function skep.clear_partition(p_partition_id bigint, p_upto bigint, p_segments integer)
returns table (segments integer, messages bigint, rest_upto bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_partition skep.partition;
  v_upto bigint;
  v_tail bigint;
  v_segments integer;
  v_last bigint;
  v_deleted integer;
begin
  select * into strict v_partition from skep.partition p where p.id = p_partition_id;
  v_upto := coalesce(p_upto, v_partition.head);
  with gone as (
    delete from skep.segment s using (
      select s.first from skep.segment s
      where s.partition_id = p_partition_id and s.last <= v_upto order by s.first limit p_segments
    ) d
    where s.partition_id = p_partition_id and s.first = d.first
    returning s.last
  )
  select count(*), max(g.last) into v_segments, v_last from gone g;
  v_tail := greatest(
    v_partition.tail, case when v_segments < p_segments then v_upto else v_last end + 1);

  delete from skep.deleted_message d
  where d.partition_id = p_partition_id and d.message_offset < v_tail;
  get diagnostics v_deleted = row_count;
  update skep.partition p set tail = v_tail where p.id = p_partition_id and p.tail <> v_tail;
  if v_tail > v_upto then
    update skep.cursor c
    set acked = n.acked, leased = null, leased_from = null, deliveries = 0,
        unanswered = 0, nacked = null, retry_at = null,
        available_at = case when n.acked < v_partition.head then skep.now() end,
        done = nullif(c.done * int8multirange(int8range(n.acked + 1, null)), '{}'),
        failed_offset = (select array_agg(f.at) from unnest(c.failed_offset) f(at)
                         where f.at > n.acked),
        failed_count = (select array_agg(f.count)
                        from unnest(c.failed_offset, c.failed_count) f(at, count)
                        where f.at > n.acked)
    from skep.cursor k
    cross join lateral (select greatest(k.acked, v_upto) as acked) a
    cross join lateral (
      -- Also pass finished messages that became contiguous.
      select coalesce((select upper(r) - 1 from unnest(k.done) r where r @> a.acked + 1), a.acked)
        as acked
    ) n
    where k.partition_id = p_partition_id
      and c.partition_id = k.partition_id and c.group_id = k.group_id;
  end if;
  return query
  select v_segments, v_tail - v_partition.tail - v_deleted,
         case when v_tail <= v_upto then v_upto end;
end $$;
