-- gather_letters: store causes of dead letters in some hours, by queue and group.
-- Takes   whole hours, p_upto exclusive. p_limit: causes per hour and queue; '(other)' sums the
--         rest.
-- Returns how many rows were stored.
-- Locks   the rows written and deleted.
-- Why     Letters get deleted, and redriven ones forgotten. An hour of a queue with fewer letters
--         than stored has lost some and is ignored; otherwise it replaces all stored rows, so that
--         no letter counts under two causes.
create function skep.gather_letters(
  p_since timestamptz, p_upto timestamptz, p_limit integer) returns bigint
language plpgsql as $$
declare
  v_new skep.analytics_letter[];
  v_stored bigint;
begin
  with letter as materialized (
    select date_trunc('hour', d.failed_at, 'UTC') as hour, q.name as queue, g.name as group_name,
           skep.letter_cause(d.error) as cause,
           greatest(extract(epoch from d.failed_at - d.created_at) * 1000, 0) as age_ms
    from (
      select l.queue_id, l.group_id, l.error, l.created_at, l.failed_at from skep.dead_letter l
      where l.failed_at >= p_since and l.failed_at < p_upto
      union all
      select r.queue_id, r.group_id, r.error, r.created_at, r.failed_at from skep.redriven_letter r
      where r.failed_at >= p_since and r.failed_at < p_upto
    ) d
    join skep.queue q on q.id = d.queue_id
    join skep.consumer_group g on g.id = d.group_id
  ),
  frequent as (
    select c.hour, c.queue, c.cause,
           row_number() over (
             partition by c.hour, c.queue order by count(*) desc, c.cause) as place
    from letter c
    group by c.hour, c.queue, c.cause
  ),
  counted as (
    select l.hour, l.queue, l.group_name,
           case when f.place <= p_limit then l.cause else '(other)' end as cause,
           count(*) as letters, sum(count(*)) over (partition by l.hour, l.queue) as found,
           percentile_cont(array[0.5, 0.95]) within group (order by l.age_ms) as age_ms,
           max(l.age_ms) as age_ms_max
    from letter l
    join frequent f on f.hour = l.hour and f.queue = l.queue and f.cause = l.cause
    group by 1, 2, 3, 4
  )
  select array_agg(row(
    c.hour, c.queue, c.group_name, c.cause, c.letters, round(c.age_ms[1]), round(c.age_ms[2]),
    round(c.age_ms_max))::skep.analytics_letter)
  into v_new
  from counted c
  where c.found >= (
    select coalesce(sum(k.letters), 0) from skep.analytics_letter k
    where k.hour = c.hour and k.queue = c.queue);

  delete from skep.analytics_letter k
  using (select distinct n.hour, n.queue from unnest(v_new) n) f
  where k.hour = f.hour and k.queue = f.queue;
  insert into skep.analytics_letter select n.* from unnest(v_new) n;
  get diagnostics v_stored = row_count;
  return v_stored;
end $$;
