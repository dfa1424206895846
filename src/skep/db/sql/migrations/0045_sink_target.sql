/*
The record of a write is of what it wrote to, as well: the writes of one micro-batch into several
queues may share the name and the number that a program gave them. Records of before cover every
target, as they always did.
*/
alter table skep.sink
  add column target text not null default '',   -- '' = whatever it wrote to
  drop constraint sink_pkey,
  add constraint sink__address primary key (write_id, target);
alter table skep.staged_segment add column target text not null default '';
alter table skep.staged_message add column target text not null default '';
alter table skep.staged_reject add column target text not null default '';
