/*
Where the archive puts the messages of a queue: in the table of all queues, or in one of its own that
has a column for each property of its JSON Schema.
*/
alter table skep.queue add column lake_table text not null default 'raw'
  constraint queue__lake_table check (lake_table in ('raw', 'typed'));
