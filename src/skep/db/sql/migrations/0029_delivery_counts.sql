/*
Deliveries are counted for every message, not for the partition. A claim always begins behind the
cursor, so the counts never grow along a partition: `deliveries` holds for all messages from the
cursor to `delivered`, the farthest ever claimed, and 0 beyond. Only while claims reached differently
far, `steps` says where the count falls.
*/
alter table skep.cursor
  add column delivered bigint not null default 0,
  add column steps bigint[];  -- pairs, ascending: an offset, and the deliveries of those up to it
update skep.cursor set delivered = coalesce(leased, acked + 1) where deliveries > 0;
