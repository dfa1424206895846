/*
Find every claim that can still be undone by its lease id.

The index held leases only. Whether a claim that was acknowledged at once had been made was found
by reading every cursor of its group, for each poll that a broken connection left in doubt.
*/
drop index skep.cursor__lease;
create index cursor__lease on skep.cursor (lease_id)
  where leased is not null or leased_from is not null;
