-- kv_namespaces: list the namespaces that have keys.
-- Returns a row per namespace, in order, with the number of its keys, counted up to p_count_max.
-- Why     The next namespace is found by index, so the cost is that of the namespaces and of what is
--         counted; expired keys count until they are deleted.
create function skep.kv_namespaces(p_count_max integer)
returns table (namespace text, keys bigint)
language sql stable as $$
  with recursive namespace as (
    (select e.ns from skep.kv_entry e order by e.ns limit 1)
    union all
    select n.ns
    from namespace p
    cross join lateral (
      select e.ns from skep.kv_entry e where e.ns > p.ns order by e.ns limit 1
    ) n
  )
  select n.ns, c.count
  from namespace n
  cross join lateral (
    select count(*) from (
      select from skep.kv_entry e where e.ns = n.ns limit p_count_max
    ) e
  ) c
  order by n.ns;
$$;
