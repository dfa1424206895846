/*
Deleting a queue of a hundred thousand partitions must neither take one long transaction nor leave
half a queue behind. So the queue itself and its groups go at once, which makes the rest
unreachable, and the rest is swept in small portions, by whoever comes first.
*/

-- Partitions outlive their queue until the sweep has reached them. provision_partitions holds the
-- queue's row while it creates partitions, so the constraint never kept anything together.
alter table skep.partition drop constraint partition_queue_id_fkey;

-- A queue that was deleted and still has something to sweep.
create table skep.removed_queue (
  queue_id integer primary key,
  name text not null,
  removed_at timestamptz not null
);
