/*
measure_ingest: how many messages per second were pushed lately, about.

Takes   p_seconds: how far to look back. p_lanes: lanes to look at. p_segments: segments of each.
Returns messages per second over all queues.
Locks   none.
Why     Nothing is counted when messages are pushed; what the newest segments say is enough for an
        overview. A lane that wrote more segments than are looked at is taken to have gone on as it
        does now; lanes beyond those looked at are taken to be like them.
*/
create function skep.measure_ingest(p_seconds integer, p_lanes integer, p_segments integer)
returns double precision
language sql stable as $$
  with recent as materialized (
    select p.id from skep.partition p
    where p.pushed_at > skep.now() - make_interval(secs => p_seconds)
  ),
  chosen as (
    -- By a hash, so that the lanes looked at are not those that were created first.
    select r.id from recent r order by hashint8(r.id) limit p_lanes
  )
  select coalesce(sum(l.per_second), 0) * (select count(*) from recent)
         / greatest((select count(*) from chosen), 1)
  from chosen c
  cross join lateral (
    select sum(s.last - s.first + 1)
           / case when count(*) < p_segments then p_seconds
                  else greatest(extract(epoch from skep.now() - min(s.created_at)), 1)
             end::double precision as per_second
    from (
      select s.first, s.last, s.created_at from skep.segment s
      where s.partition_id = c.id order by s.first desc limit p_segments
    ) s
    where s.created_at > skep.now() - make_interval(secs => p_seconds)
  ) l
$$;
