-- summarize_letters: what the newest dead letters have in common.
-- Takes   p_letters: how many to look at. p_errors: how many distinct errors to return.
-- Returns most frequent first; partitions: how many all these letters come from.
-- Why     When letters pile up, the first question is whether they share a cause.
create function skep.summarize_letters(p_letters integer, p_errors integer)
returns table (error text, count bigint, partitions bigint)
language sql stable as $$
  with newest as materialized (
    select d.partition_id, left(d.error, 500) as error from skep.dead_letter d
    order by d.failed_at desc, d.id desc limit p_letters
  )
  select n.error, count(*), (select count(distinct p.partition_id) from newest p)
  from newest n
  group by n.error
  order by 2 desc, 1
  limit p_errors;
$$;
