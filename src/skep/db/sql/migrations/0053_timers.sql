/*
Timers: scheduled messages under a key of the client's own, which it replaces or cancels. The nonce of
such a row is its negative id: transaction ids count when it fires, not while it waits.
*/
alter table skep.scheduled
  add column timer_key text collate "C"        -- null: not a timer
    constraint scheduled__timer_key_size check (octet_length(timer_key) between 1 and 512),
  add column rescheduled_at timestamptz;       -- null: never replaced
create unique index scheduled__timer on skep.scheduled (queue_id, timer_key)
  where timer_key is not null;
