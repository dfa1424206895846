/*
reading_groups: the consumer groups of a queue that messages wait for.

Takes   p_queue_id.
Returns their ids: every named group, and that of queue mode when there is no other or when somebody
        has ever polled without a group.
Locks   none.
Why     The group of queue mode exists from the start, also where nobody uses it. Then everything
        ever pushed would wait for it, and a queue with a limit would be full for good. Whether it
        is in use is seen in a hundred lanes, not in all: a claim leaves its lease id behind.
*/
create function skep.reading_groups(p_queue_id integer) returns setof integer
language sql stable as $$
  select g.id
  from skep.consumer_group g
  where g.queue_id = p_queue_id
    and (
      g.name <> '__QUEUE_MODE__'
      or not exists (
        select from skep.consumer_group n
        where n.queue_id = p_queue_id and n.name <> '__QUEUE_MODE__')
      or exists (
        select from (
          select p.id from skep.partition p
          where p.queue_id = p_queue_id order by p.name limit 100
        ) p
        cross join lateral (
          select c.lease_id from skep.cursor c
          where c.partition_id = p.id and c.group_id = g.id offset 0
        ) c
        where c.lease_id is not null));
$$;
