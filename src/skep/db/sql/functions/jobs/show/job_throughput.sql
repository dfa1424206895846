-- job_throughput: recently ended jobs per type, and how long they ran.
-- Takes   p_span_s: how far to look back. p_chains_max: chains to look at.
-- Returns per type, by name: type, ended, failed, run_s (mean duration of the final attempts, null
--         if none ran), span_s: the time covered, shorter than p_span_s if there were more chains.
-- Why     Counts jobs of closed chains, which have an index by time; a bounded number of the newest
--         gives the rate.
create function skep.job_throughput(p_span_s double precision, p_chains_max integer)
returns table (
  type text, ended bigint, failed bigint, run_s double precision, span_s double precision)
language sql stable as $$
  with closed as materialized (
    select c.id, c.closed_at from skep.chain c
    where c.closed_at > skep.now() - make_interval(secs => p_span_s)
    order by c.closed_at desc, c.id desc limit p_chains_max
  ),
  span as materialized (
    select case when count(*) < p_chains_max then p_span_s
                else greatest(extract(epoch from skep.now() - min(c.closed_at)), 0.001)
           end::double precision as seconds
    from closed c
  )
  select t.name, count(*), count(*) filter (where j.state = 'failed'),
         avg(extract(epoch from j.finished_at - j.started_at))::double precision, s.seconds
  from span s
  cross join closed c
  join skep.job j on j.chain_id = c.id
  join skep.job_type t on t.id = j.type_id
  where j.finished_at is not null
  group by t.name, s.seconds order by t.name;
$$;
