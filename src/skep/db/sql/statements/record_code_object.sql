-- record_code_object: $1 kind, $2 name, $3 checksum.
insert into skep.code_object (kind, name, checksum)
values ($1, $2, $3)
on conflict (kind, name) do update set checksum = excluded.checksum;
