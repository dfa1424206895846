-- measure_ingest: roughly how many messages per second were pushed lately.
-- Takes   p_seconds: how far to look back. p_partitions, p_segments: how many to look at.
-- Returns messages per second over all queues.
-- Why     Pushes are not counted; the newest segments suffice for an overview. A partition with
--         more segments than were read is extrapolated in time, and the sample to all partitions.
create function skep.measure_ingest(p_seconds integer, p_partitions integer, p_segments integer)
returns double precision
language plpgsql stable as $$
declare
  v_since constant timestamptz := skep.now() - make_interval(secs => p_seconds);
  v_recent constant bigint[] := array(
    select p.id from skep.partition p where p.pushed_at > v_since);
  v_step constant integer := greatest(cardinality(v_recent) / p_partitions, 1);
begin
  return (
    select coalesce(sum(l.per_second), 0) * cardinality(v_recent) / greatest(count(*), 1)
    from generate_series(1, cardinality(v_recent), v_step) i
    cross join lateral (
      select coalesce(sum(s.last - s.first + 1), 0)
             / case when count(*) < p_segments then p_seconds
                    else greatest(extract(epoch from skep.now() - min(s.created_at)), 1)
               end::double precision as per_second
      from (
        select s.first, s.last, s.created_at from skep.segment s
        where s.partition_id = v_recent[i] order by s.first desc limit p_segments
      ) s
      where s.created_at > v_since
    ) l
  );
end $$;
