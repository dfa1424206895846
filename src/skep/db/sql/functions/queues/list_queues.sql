-- list_queues: one page of queues.
-- Takes   p_namespace, p_task: exact, or null. p_search: part of the name, case-insensitive, or
--         null. p_sort: newest, oldest or name.
-- Returns total (matches, on every row) and the page. An empty page is one row with a null id.
-- Why     The total is needed even if the page is empty.
create function skep.list_queues(
  p_namespace text, p_task text, p_search text, p_sort text, p_limit integer, p_offset integer)
returns table (
  total bigint, id integer, name text, namespace text, task text, created_at timestamptz,
  is_paused boolean)
language sql stable as $$
  with matching as (
    select q.id, q.name, q.namespace, q.task, q.created_at, q.is_paused
    from skep.queue q
    where (p_namespace is null or q.namespace = p_namespace)
      and (p_task is null or q.task = p_task)
      and (p_search is null or position(lower(p_search) in lower(q.name)) > 0)
  )
  select t.total, q.id, q.name, q.namespace, q.task, q.created_at, q.is_paused
  from (select count(*) as total from matching) t
  left join (
    select * from matching m
    order by case when p_sort = 'name' then m.name end,
             case when p_sort = 'newest' then m.id end desc,
             m.id
    limit p_limit offset p_offset
  ) q on true
  order by case when p_sort = 'name' then q.name end,
           case when p_sort = 'newest' then q.id end desc,
           q.id
$$;
