/*
A subscription may start in the future: what is pushed before is not for the group. That is a matter
of each cursor, not of the group alone, because a seek takes a cursor elsewhere, also to before the
start, and because a start that is changed later counts only when the progress is forgotten.
*/

-- Nothing that was pushed before is delivered; null = whatever follows acked is. Set where a start
-- lies ahead, and never looked at in groups of which no start does.
alter table skep.cursor add column starts_at timestamptz;
update skep.cursor c set starts_at = g.subscribed_from
from skep.consumer_group g
where g.id = c.group_id and g.subscribed_from > g.created_at;
