/*
reading_groups: the consumer groups of a queue that messages wait for.

Takes   p_queue_id.
Returns their ids: every named group, and that of queue mode when there is no other or when somebody
        has ever polled without a group.
Locks   none.
Why     The group of queue mode exists from the start, also where nobody uses it. Then everything
        ever pushed would wait for it, and a queue with a limit would be full for good.
*/
create function skep.reading_groups(p_queue_id integer) returns setof integer
language sql stable as $$
  select g.id
  from skep.consumer_group g
  where g.queue_id = p_queue_id
    and (
      g.name <> '__QUEUE_MODE__'
      or g.first_polled_at is not null
      or not exists (
        select from skep.consumer_group n
        where n.queue_id = p_queue_id and n.name <> '__QUEUE_MODE__'));
$$;
