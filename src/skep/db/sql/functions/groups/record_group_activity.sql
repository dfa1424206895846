-- record_group_activity: note what the consumers of groups did since a process last reported.
-- Takes   p_groups: an array of objects with queue and group (names), progressed and failed
--         (booleans). p_absent_s: after so long without a poll, consumers have come back.
-- Locks   skep.group_activity rows in ascending group.
-- Why     Whether a group has consumers, and whether they make progress, is known only to the
--         processes that serve them. A group deleted meanwhile is left out.
create function skep.record_group_activity(p_groups jsonb, p_absent_s double precision)
returns void
language sql as $$
  insert into skep.group_activity as a (
    group_id, polled_at, expected_from, progressed_at, failed_at)
  select g.id, k.now, k.now, case when n.progressed then k.now end, case when n.failed then k.now end
  from (select skep.now() as now offset 0) k
  cross join jsonb_to_recordset(p_groups) n(
    queue text, "group" text, progressed boolean, failed boolean)
  join skep.queue q on q.name = n.queue
  join skep.consumer_group g on g.queue_id = q.id and g.name = n."group"
  order by g.id
  on conflict (group_id) do update
  set polled_at = excluded.polled_at,
      expected_from = case
        when a.polled_at < excluded.polled_at - make_interval(secs => p_absent_s)
        then excluded.expected_from else a.expected_from end,
      progressed_at = coalesce(excluded.progressed_at, a.progressed_at),
      failed_at = coalesce(excluded.failed_at, a.failed_at);
$$;
