/*
Dead letters as people work with them: listed by time, redriven one by one or by the thousand.

The table dead_letter holds the dead only. A letter that was redriven leaves it, in the transaction
that pushed its message again, and leaves a short record behind for some weeks. So a message that dies again gets
a letter of its own, and nobody who counts the dead has to ask for a state.
*/

drop index skep.dead_letter__queue_failed;
create index dead_letter__queue_failed on skep.dead_letter (queue_id, failed_at, id);
create index dead_letter__group_failed on skep.dead_letter (group_id, failed_at, id);
create index dead_letter__failed on skep.dead_letter (failed_at, id);

create table skep.redriven_letter (
  id bigint primary key,            -- the dead letter's
  partition_id bigint not null,     -- where the message had been ...
  message_offset bigint not null,
  group_id integer not null,
  queue_id integer not null,
  transaction_id text not null,
  error text not null,
  failures integer not null,
  created_at timestamptz not null,
  failed_at timestamptz not null,
  redriven_at timestamptz not null,
  to_partition_id bigint not null,  -- ... and where it is now
  to_offset bigint not null
);
create index redriven_letter__redriven on skep.redriven_letter (redriven_at);

/*
A redrive of many letters, worked off in batches by the process that owns it. Everything it needs to
go on is here, so that another process can take it over.
*/
create table skep.redrive (
  id uuid primary key,
  filter json not null,
  target json not null,             -- empty: every message goes back to where it was
  letters_max bigint,               -- no more than so many
  last_letter_id bigint not null,   -- what dies later is not part of it, or it might never end
  position bigint not null default 0,  -- letters up to here were dealt with
  total bigint not null,
  is_total_estimate boolean not null,
  moved bigint not null default 0,
  duplicates bigint not null default 0,
  state text not null default 'running'
    constraint redrive__state check (state in ('running', 'done', 'cancelled', 'failed')),
  error text,
  owner uuid not null,
  created_at timestamptz not null,
  progressed_at timestamptz not null,
  finished_at timestamptz
);
create index redrive__created on skep.redrive (created_at, id);
create index redrive__running on skep.redrive (progressed_at) where state = 'running';
