-- list_labels: one page of the namespaces or tasks of queues.
-- Takes   p_kind: namespace or task.
-- Returns total and per label its queues. An empty page is one row with a null label.
-- Why     Namespace and task are only columns; the counts of a label are sums over its queues.
create function skep.list_labels(p_kind text, p_limit integer, p_offset integer)
returns table (total bigint, label text, queue_id integer[])
language sql stable as $$
  with labels as (
    select case p_kind when 'task' then q.task else q.namespace end as label,
           array_agg(q.id) as queue_id
    from skep.queue q
    group by 1
  )
  select t.total, l.label, l.queue_id
  from (select count(*) as total from labels) t
  left join (select * from labels order by label limit p_limit offset p_offset) l on true
  order by l.label
$$;
