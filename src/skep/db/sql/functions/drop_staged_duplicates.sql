/*
drop_staged_duplicates: take out of staged segments what their partitions hold already.

Takes   p_write_id, p_epoch, p_attempt: whose staging. p_lane_id, p_queue, p_partition, p_window_s:
        the partitions, as staged_lanes returns them. p_now.
Returns how many messages were taken out.
Locks   none beyond the staged rows; the caller holds the partitions.
Why     A push probes segment by segment. Here a lane gets hundreds of segments at a time, and each
        would be compared with all before it; so all keys of all lanes are compared at once, with
        those of the window and with each other. Of two rows with one transaction id the first one
        stays. Ids that were made up by the writer itself are not looked at. `|| ''` reads keys
        that are stored out of line once and not once for each of them. Nobody has statistics of
        staging: without the settings a plan may compare every key with every other.
*/
create function skep.drop_staged_duplicates(
  p_write_id text, p_epoch bigint, p_attempt bigint[],
  p_lane_id bigint[], p_queue text[], p_partition text[], p_window_s integer[], p_now timestamptz)
returns bigint
language plpgsql
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set work_mem = '64MB'
as $$
#variable_conflict use_column
declare
  v_count bigint := 0;
  v_segment record;
begin
  for v_segment in
    with lane as materialized (
      select l.* from unnest(p_lane_id, p_queue, p_partition, p_window_s)
        l(id, queue, partition, window_s)
      where l.window_s > 0
    ),
    given as materialized (
      select s.id, s.task, s.attempt, s.number, s.messages, g.index,
             substr(s.keys, g.index * 16 + 1, 16) as key
      from (
        select l.id, s.task, s.attempt, s.number, s.messages, b.keys || ''::bytea as keys
        from skep.staged_segment s
        join lane l on l.queue = s.queue and l.partition = s.partition
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
        from lane l
        cross join lateral (
          select skep.offset_before(
            l.id, p_now - make_interval(secs => l.window_s) + interval '1 microsecond') as upto
          offset 0
        ) w
        cross join lateral (
          select s.first, s.last, s.keys from skep.segment s
          where s.partition_id = l.id and s.first > w.upto offset 0
        ) s
        where l.id in (select n.id from given n)
        offset 0
      ) s
      cross join lateral generate_series(0, s.last_index::integer) g(index)
    ),
    repeated as (
      select n.task, n.attempt, n.number, n.messages, n.index,
             row_number() over (partition by n.id, n.key order by n.task, n.number, n.index) as turn
      from given n
      join (select g.id, g.key from given g group by g.id, g.key having count(*) > 1) r
        on r.id = n.id and r.key = n.key
    ),
    duplicate as (
      select r.task, r.attempt, r.number, r.messages, r.index from repeated r where r.turn > 1
      union
      select n.task, n.attempt, n.number, n.messages, n.index
      from given n join stored o on o.id = n.id and o.key = n.key
    )
    select d.task, d.attempt, d.number, d.messages, array_agg(d.index) as indexes
    from duplicate d
    group by d.task, d.attempt, d.number, d.messages
  loop
    v_count := v_count + cardinality(v_segment.indexes);
    if cardinality(v_segment.indexes) = v_segment.messages then
      delete from skep.segment b
      where b.partition_id = -v_segment.attempt and b.first = v_segment.number;
      delete from skep.staged_segment s
      where s.write_id = p_write_id and s.epoch = p_epoch and s.task = v_segment.task
        and s.attempt = v_segment.attempt and s.number = v_segment.number;
      continue;
    end if;
    update skep.segment b set (keys, body) = (
      select string_agg(substr(b.keys, e.position::integer * 16 - 15, 16), ''::bytea
                        order by e.position),
             convert_to('[' || string_agg(e.envelope::text, ',' order by e.position) || ']',
                        'UTF8')
      from json_array_elements(convert_from(b.body, 'UTF8')::json)
             with ordinality e(envelope, position)
      where e.position - 1 <> all(v_segment.indexes))
    where b.partition_id = -v_segment.attempt and b.first = v_segment.number;
    update skep.staged_segment s set messages = s.messages - cardinality(v_segment.indexes)
    where s.write_id = p_write_id and s.epoch = p_epoch and s.task = v_segment.task
      and s.attempt = v_segment.attempt and s.number = v_segment.number;
  end loop;
  return v_count;
end $$;
