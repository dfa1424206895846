-- sample_groups: record the lag of groups whose queues are in use.
-- Takes   p_partitions: partitions to count, see measure_backlog.
-- Returns how many groups were recorded.
-- Raises  SK423 as assert_leadership.
-- Locks   the rows written.
-- Why     A lag must be measured when it happens. Queues unused in the last minutes are left out.
create function skep.sample_groups(
  p_service text, p_holder uuid, p_limit integer, p_partitions integer) returns bigint
language plpgsql as $$
declare
  v_group integer[];
  v_count bigint;
begin
  perform skep.assert_leadership(p_service, p_holder);
  v_group := array(
    select g.id
    from (
      select a.queue_id, sum(a.push_messages + a.pop_messages) as messages
      from skep.queue_minute a where a.at > skep.now() - interval '5 minutes'
      group by a.queue_id
    ) a
    join skep.consumer_group g on g.queue_id = a.queue_id
    where g.first_polled_at is not null
    order by a.messages desc, g.id
    limit p_limit);
  insert into skep.group_minute (group_id, at, backlog, lag_s)
  select b.group_id, date_trunc('minute', skep.now(), 'UTC'), b.backlog, b.lag_s
  from skep.measure_backlog(v_group, p_partitions) b
  on conflict (group_id, at) do update set backlog = excluded.backlog, lag_s = excluded.lag_s;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
