-- list_redrives: redrives and their progress, newest first.
-- Takes   p_id: only this one, or null.
-- Returns rows of skep.redrive.
-- Why     One function for one and for many keeps their columns the same.
create function skep.list_redrives(p_id uuid, p_limit integer, p_offset bigint)
returns setof skep.redrive
language sql stable as $$
  select r.* from skep.redrive r
  where p_id is null or r.id = p_id
  order by r.created_at desc, r.id desc
  limit p_limit offset p_offset;
$$;
