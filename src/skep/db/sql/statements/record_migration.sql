-- record_migration: $1 number, $2 name, $3 checksum.
insert into skep.migration (number, name, checksum)
values ($1, $2, $3);
