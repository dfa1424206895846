-- job_counts: open jobs per type, and the wait of the oldest ready one.
-- Takes   p_budget: roughly how many jobs to read.
-- Returns per type with open jobs: type, ready, scheduled, blocked, running, oldest_ready_s (null
--         if none is ready), is_exact; bound, the same in all rows: smaller numbers are exact.
--         Where a number reaches it, is_exact is false and that number is an estimate
--         (job_estimate).
-- Why     Counters would be written by every claim and completion. So a bounded part of each
--         priority and state is counted in indexes, in the same time whatever waits (ADR 0039).
create function skep.job_counts(p_budget integer)
returns table (
  type text, ready bigint, scheduled bigint, blocked bigint, running bigint,
  oldest_ready_s double precision, is_exact boolean, bound integer)
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_type_id constant integer[] := array(select t.id from skep.job_type t);
  v_bound constant integer := greatest(
    p_budget / greatest((select count(*) from skep.job_fronts(v_type_id, '-infinity')), 1), 100);
begin
  return query
  select t.name, e.counts[1], e.counts[2], e.counts[3], e.counts[4],
         extract(epoch from v_now - q.oldest)::double precision,
         v_bound > all (n.counts), v_bound
  from skep.job_type t
  cross join lateral (
    select coalesce(sum(d.count), 0)::bigint as ready,
           coalesce(sum(l.count), 0)::bigint as scheduled,
           min(f.due_at) filter (where f.due_at <= v_now) as oldest
    from skep.job_fronts(array[t.id], '-infinity') f
    cross join lateral (
      select count(*) from (
        select from skep.open_job o
        where o.type_id = t.id and o.priority = f.priority and o.due_at <= v_now
          and o.worker_id is null and o.open_blockers = 0 limit v_bound) d
    ) d
    cross join lateral (
      select count(*) from (
        select from skep.open_job o
        where o.type_id = t.id and o.priority = f.priority and o.due_at > v_now
          and o.worker_id is null and o.open_blockers = 0 limit v_bound) l
    ) l
  ) q
  cross join lateral (
    select count(*) from (
      select from skep.open_job o where o.type_id = t.id and o.open_blockers > 0 limit v_bound) b
  ) b
  cross join lateral (
    select count(*) from (
      select from skep.open_job o
      where o.type_id = t.id and o.worker_id is not null limit v_bound) r
  ) r
  cross join lateral (
    select array[q.ready, q.scheduled, b.count, r.count] as counts offset 0) n
  cross join lateral (
    select skep.job_estimate(t.id, n.counts, v_bound) as counts offset 0) e
  where 0 < any (n.counts)
  order by t.name;
end $$;
