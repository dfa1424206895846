/*
Where a queue does not look for duplicates, messages with the same transaction id may wait side by
side. A nonce keeps them apart; a repeated call names the same nonce again and finds its own.
*/
alter table skep.scheduled
  add column nonce bigint not null default 0;  -- 0 in a queue that looks for duplicates
drop index skep.scheduled__key;
create unique index scheduled__key on skep.scheduled (queue_id, partition, key, nonce);
-- The old ones name an index that is gone. A running broker repeats a call of a missing function, and
-- meets the new ones, which are created after the migrations.
drop function if exists skep.schedule_messages, skep.schedule_staged;
