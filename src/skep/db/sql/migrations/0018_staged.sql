/*
Messages that were enqueued inside a user's own transaction and are not in the log yet.

Staging takes no lock that anybody else wants: the rows become visible when their transaction
commits, and then a broker moves them into the log. The rows of a transaction are found by its id,
transactions by the number they draw when they commit.
*/

create sequence skep.commit_number;

-- One row per transaction that staged something, written at the very end of it.
create table skep.staged_transaction (
  xid xid8 primary key,
  -- Who committed before another began to commit has the lower number.
  commit_number bigint not null default nextval('skep.commit_number')
) with (
  vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
create unique index staged_transaction__order on skep.staged_transaction (commit_number);

-- The storage is that of segments: what stays for some milliseconds is not worth compressing.
create table skep.staged (
  id bigint generated always as identity primary key,
  xid xid8 not null default pg_current_xact_id(),
  is_first boolean not null default true,  -- of its transaction, as far as who staged it knew
  queue text not null constraint staged__queue_length check (length(queue) <= 255),
  partition text not null constraint staged__partition_length check (length(partition) <= 255),
  transaction_id text not null
    constraint staged__transaction_id_length check (length(transaction_id) between 1 and 255),
  payload json not null,
  headers jsonb constraint staged__headers check (jsonb_typeof(headers) = 'object'),
  trace_id uuid,
  deliver_at timestamptz,
  ttl_s double precision constraint staged__ttl check (ttl_s > 0 and ttl_s <= 316224000),
  staged_at timestamptz not null default clock_timestamp()
) with (
  vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
alter table skep.staged alter column payload set storage external;
create index staged__transaction on skep.staged (xid, id);

/*
A trigger that waits for the commit, because only there numbers can be drawn in commit order. It
reads nothing, so serializable transactions get no conflicts from it, and writes one row once.
Deferred triggers may run as whoever commits, hence the definer's rights. Its function is made here
and not among the functions: a function that a trigger uses cannot be dropped and created anew.
*/
create function skep.number_commit () returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into skep.staged_transaction (xid) values (new.xid) on conflict do nothing;
  return null;
end $$;

create constraint trigger staged__number_commit
  after insert on skep.staged
  deferrable initially deferred
  for each row when (new.is_first) execute function skep.number_commit ();

-- Also for sessions that switch triggers off to load data: their messages must not be forgotten.
alter table skep.staged enable always trigger staged__number_commit;
