-- failed_chains: the chains that failed lately, by type.
-- Takes   p_chains: how many failed chains to look at. p_seconds: no older than that.
-- Returns most first: how many, since when, and the most frequent error line.
-- Why     The index of chains that are not completed is in the order of their creation, so the
--         newest failures are at its end.
create function skep.failed_chains(p_chains integer, p_seconds integer)
returns table (type text, chains bigint, since timestamptz, last_at timestamptz, error text)
language sql stable as $$
  select t.name, count(*), min(f.closed_at), max(f.closed_at),
         mode() within group (order by skep.error_line(coalesce(f.error, j.error)))
  from (
    select c.type_id, c.closed_at, c.error, c.last_job_id from skep.chain c
    where c.state = 'failed' order by c.id desc limit p_chains
  ) f
  join skep.job_type t on t.id = f.type_id
  left join lateral (
    select j.error from skep.job j where j.id = f.last_job_id offset 0
  ) j on true
  where f.closed_at > skep.now() - make_interval(secs => p_seconds)
  group by t.name
  order by 2 desc, 1;
$$;
