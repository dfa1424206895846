/*
When the consumers of a group were last seen, in any process of the installation. Written by each
process every few seconds, for the groups that were used since; never by push, pop or ack. A group
without a row has not been used since its row was purged. Nothing refers to a group by a foreign
key: that would lock it.
*/
create table skep.group_activity (
  group_id integer primary key,
  polled_at timestamptz not null,
  expected_from timestamptz not null, -- since when progress can be expected: consumers came (back),
                                      -- delivery was resumed, or a seek moved the group
  progressed_at timestamptz,          -- messages were finished
  failed_at timestamptz               -- messages failed
) with (fillfactor = 50);
