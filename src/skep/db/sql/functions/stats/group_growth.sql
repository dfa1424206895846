-- group_growth: how fast the backlog of consumer groups grows.
-- Takes   p_seconds: how far to look back.
-- Returns messages per second, negative while the backlog shrinks; only groups that were sampled
--         twice since (see sample_groups).
-- Why     A line through the samples: two of them may differ because one was an estimate.
create function skep.group_growth(p_group_id integer[], p_seconds integer)
returns table (group_id integer, per_second double precision)
language sql stable as $$
  select m.group_id, regr_slope(m.backlog, extract(epoch from m.at)::double precision)
  from skep.group_minute m
  where m.group_id = any(p_group_id) and m.at > skep.now() - make_interval(secs => p_seconds)
  group by m.group_id
  having count(*) > 1;
$$;
