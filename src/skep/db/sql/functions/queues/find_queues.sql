/*
find_queues: the queues that a reader named or described.

Takes   p_name: names, null for none. p_pattern: a regular expression the whole name has to match,
        null for none.
Returns id and name of each that exists, by name.
Locks   none.
Why     Asked anew for every micro-batch, so that new queues appear by themselves. There are
        thousands of queues at most.
*/
create function skep.find_queues(p_name text[], p_pattern text)
returns table (id integer, name text)
language sql stable as $$
  select q.id, q.name from skep.queue q
  where q.name = any(p_name) or q.name ~ ('^(?:' || p_pattern || ')$')
  order by q.name;
$$;
