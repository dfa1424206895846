-- list_migrations: what was applied.
select number, name, checksum
from skep.migration
order by number;
