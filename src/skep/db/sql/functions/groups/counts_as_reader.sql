-- counts_as_reader: whether a consumer group counts among the readers of its queue.
-- Returns true for every named group; for the default group once a consumer has polled without a
--         group, or while the queue has no other.
-- Why     The default group exists on every queue. Where only named groups consume, it would lag
--         behind for ever, and a queue with a limit would be full for good.
create function skep.counts_as_reader(p_group skep.consumer_group) returns boolean
language sql stable as $$
  select p_group.name <> '__QUEUE_MODE__'
      or p_group.first_polled_at is not null
      or not exists (
        select from skep.consumer_group o
        where o.queue_id = p_group.queue_id and o.name <> '__QUEUE_MODE__');
$$;
