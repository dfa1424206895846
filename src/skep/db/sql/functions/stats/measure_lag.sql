/*
measure_lag: how far consumers are behind, over the partitions that have something to read.

Takes   p_partitions: about how many partitions to look at.
Returns one row: average, median, least and greatest of the age of the first unread message
        (time_avg, time_median, time_min, time_max, in seconds) and of the number of unread
        messages (offset_avg, offset_median, offset_min, offset_max). All 0 when nothing is unread.
Locks   none.
Why     A figure for the overview: a sample tells it as well as all partitions would.
*/
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
