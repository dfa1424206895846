/*
What the full message plane needs of the log: further options of queues, pausing, messages that are
done ahead of their cursor, and messages deleted out of their segment.
*/

-- Queen stored a ttl of an hour for every queue and never acted on it. Acting on it now would
-- delete what nobody asked to delete, so the stored hours become "for ever".
alter table skep.queue alter column ttl_s set default 0;
update skep.queue set ttl_s = 0;

-- Queen showed false for both and kept dead letters all the same. They are true now, and a message
-- that is given up is dropped only where both were set to false.
alter table skep.queue
  alter column dead_letter_queue set default true,
  alter column dlq_after_max_retries set default true;
update skep.queue set dead_letter_queue = true, dlq_after_max_retries = true;

alter table skep.queue
  -- After so many deliveries without an outcome a message is dead; 0 = never.
  add column max_deliveries integer not null default 0,
  -- The delay after a failure doubles from retry_delay_ms up to this.
  add column retry_delay_ms_max integer not null default 300000,
  add column ack_mode text not null default 'cumulative'
    constraint queue__ack_mode check (ack_mode in ('cumulative', 'individual')),
  -- What happens to a push into a queue that holds max_size messages.
  add column overflow text not null default 'reject'
    constraint queue__overflow check (overflow in ('reject', 'drop_oldest')),
  add column json_schema json,
  add column is_paused boolean not null default false,
  -- Grows with every change. A push names the version its broker knew, so that no message is
  -- stored by rules that are no longer in force.
  add column version integer not null default 1;

alter table skep.consumer_group
  add column is_paused boolean not null default false,
  -- Deliver only the newest message of each lane; null until a poll says which it wants.
  add column conflation boolean;

-- Offsets above acked that need no delivery: acknowledged out of order, expired or deleted. Never
-- contains acked + 1: whoever adds to it moves acked over what has become contiguous.
alter table skep.cursor add column done int8multirange;

alter table skep.cursor
  -- Claims of offset acked + 1 since a consumer last said anything about it.
  add column unanswered integer not null default 0,
  -- Where acks are individual: the offsets under lease that were nacked, and when they may come
  -- again. The lease goes on until every message under it is answered.
  add column nacked int8multirange,
  add column retry_at timestamptz;

-- A deleted message is a null in its segment; this remembers which, until retention takes the
-- segment. New cursors start with these offsets done, counts leave them out.
create table skep.deleted_message (
  partition_id bigint not null,
  message_offset bigint not null,
  deleted_at timestamptz not null default clock_timestamp(),
  constraint deleted_message__address primary key (partition_id, message_offset)
);
