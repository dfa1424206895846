-- find_queues: the queues that a reader names or matches.
-- Takes   p_name, p_id: names and ids, or null. p_pattern: a regular expression for the whole name,
--         or null.
-- Returns each that exists, by name.
-- Why     Asked for every micro-batch, so that new queues appear; there are thousands at most.
create function skep.find_queues(p_name text[], p_pattern text, p_id integer[] default null)
returns table (id integer, name text)
language sql stable as $$
  select q.id, q.name from skep.queue q
  where q.name = any(p_name) or q.id = any(p_id) or q.name ~ ('^(?:' || p_pattern || ')$')
  order by q.name;
$$;
