/*
counts_as_reader: whether an operator wants to see a consumer group among those of its queue.

Takes   p_group: the row of the group.
Returns true for every named group, and for that of queue mode once somebody polled without a group
        or while the queue has no other.
Locks   none.
Why     The group of queue mode exists on every queue. Where only named groups consume, it would be
        listed with a backlog that grows for ever, and be the first of all that lag behind.
*/
create function skep.counts_as_reader(p_group skep.consumer_group) returns boolean
language sql stable as $$
  select p_group.name <> '__QUEUE_MODE__'
      or p_group.first_polled_at is not null
      or not exists (
        select from skep.consumer_group o
        where o.queue_id = p_group.queue_id and o.name <> '__QUEUE_MODE__');
$$;
