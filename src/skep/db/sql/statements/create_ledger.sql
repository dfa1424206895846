-- create_ledger: the tables of the migration runner. The runner creates them once, under its
-- advisory lock; no migration can, because the first one is recorded here.
create schema if not exists skep;

create table skep.migration (
  number int not null,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default now(),
  constraint migration__number primary key (number)
);

comment on table skep.migration is 'A migration that was applied, with the SHA-256 of its file.';

create table skep.code_object (
  kind text not null,
  name text not null,
  checksum text not null,
  constraint code_object__kind_name primary key (kind, name),
  constraint code_object__kind_known check (kind in ('function', 'view'))
);

comment on table skep.code_object is
  'A function or view that was created from a file, with the SHA-256 of that file.';
