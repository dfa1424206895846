/*
What readers on Spark need beyond the log: which queues were deleted and with what in them, and how
far each timeline of the server is known to reach, so that a failover to a standby that was behind
is told from one that lost nothing.
*/

-- The name of a deleted queue; null while it exists. Its rows are purged with the history.
alter table skep.removed_span add column queue text;
create index removed_span__removed on skep.removed_span (removed_at) where queue is not null;

create table skep.timeline (
  number integer primary key,         -- as PostgreSQL counts: each promotion begins another one
  xid xid8 not null                   -- a transaction that committed on it
);
