/*
What transactions had ended at some times of the past, one an hour: a reader on Spark that wants
messages from a time on need not look at those that were stored before.
*/
create table skep.past_snapshot (
  taken_at timestamptz primary key,
  system text not null,               -- the server whose transaction ids these are
  snapshot pg_snapshot not null
);
