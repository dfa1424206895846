/*
The partitions of a queue in the order in which they were created, so that a listing of what has
changed goes on behind its last page. Pushes do not change these columns: their updates stay on the
page.
*/
create index partition__queue_id on skep.partition (queue_id, id);
