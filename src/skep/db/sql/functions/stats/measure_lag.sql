-- measure_lag: how far consumers are behind, over partitions with unread messages.
-- Takes   p_partitions: roughly how many partitions to look at.
-- Returns one row: the age of the first unread message (time_*, in seconds) and the number of
--         unread messages (offset_*). All 0 if nothing is unread.
-- Why     A sample is good enough for an overview.
create function skep.measure_lag(p_partitions integer)
returns table (
  time_avg double precision, time_median double precision, time_min double precision,
  time_max double precision, offset_avg double precision, offset_median double precision,
  offset_min double precision, offset_max double precision)
language plpgsql stable as $$
declare
  v_partitions bigint[];
begin
  select array_agg(s.partition_id) into v_partitions
  from (select array_agg(q.id) as ids from skep.queue q) q
  cross join lateral skep.sample_partitions(q.ids, p_partitions) s
  where q.ids is not null;

  return query
  select coalesce(avg(b.age), 0), coalesce(percentile_cont(0.5) within group (order by b.age), 0),
         coalesce(min(b.age), 0), coalesce(max(b.age), 0),
         coalesce(avg(b.unread), 0),
         coalesce(percentile_cont(0.5) within group (order by b.unread), 0),
         coalesce(min(b.unread), 0), coalesce(max(b.unread), 0)
  from (
    select l.pending::double precision as unread,
           greatest(extract(epoch from skep.now() - s.created_at), 0)::double precision as age
    from skep.partition_counts(v_partitions) l
    cross join lateral (
      select s.created_at from skep.segment s
      where s.partition_id = l.id and s.first <= l.acked + 1
      order by s.first desc limit 1
    ) s
    where l.pending > 0
  ) b;
end $$;
