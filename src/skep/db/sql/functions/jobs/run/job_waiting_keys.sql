-- job_waiting_keys: the limit keys of waiting jobs of a type.
-- Takes   p_type_id; p_from: the first key; p_limit.
-- Returns each key once, ascending.
-- Why     The next key is one look-up away, however many jobs share a key.
create function skep.job_waiting_keys(p_type_id integer, p_from text, p_limit integer)
returns table (key text)
language sql stable as $$
  with recursive waiting as (
    (select o.limit_key as key from skep.open_job o
     where o.type_id = p_type_id and o.worker_id is null and o.open_blockers = 0
       and o.limit_key >= p_from
     order by o.limit_key limit 1)
    union all
    select n.key from waiting w
    cross join lateral (
      select o.limit_key as key from skep.open_job o
      where o.type_id = p_type_id and o.worker_id is null and o.open_blockers = 0
        and o.limit_key > w.key
      order by o.limit_key limit 1
    ) n
  )
  select w.key from waiting w limit p_limit;
$$;
