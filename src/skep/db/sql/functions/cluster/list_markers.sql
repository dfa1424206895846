-- list_markers: what happened to instances between two moments.
-- Takes   p_to is exclusive.
-- Returns newest first.
-- Why     A step in a chart often has its reason in a deploy or a restart.
create function skep.list_markers(p_from timestamptz, p_to timestamptz, p_limit integer)
returns table (at timestamptz, kind text, instance text, version text)
language sql stable as $$
  select m.at, m.kind, m.instance, m.version from skep.marker m
  where m.at >= p_from and m.at < p_to
  order by m.at desc, m.id desc limit p_limit;
$$;
