/*
A group that is deleted leaves a cursor in every lane of its queue, to be swept in small portions.
Whoever deleted it may stop half way; nobody else would ever know of these cursors again.
*/

-- A group that was deleted and still has cursors or dead letters to sweep.
create table skep.removed_group (
  group_id integer primary key,
  queue_id integer not null,
  next_name text not null default '',  -- lanes with smaller names have been swept
  removed_at timestamptz not null
);
