/*
Keys and values. The rows are for reading; the functions kv_* write them, since a version has to be
drawn while the row is locked. Only then do the versions of a key never fall, whatever is deleted,
expires and is created again. Applications read the view skep.kv, which leaves out what has expired.
*/
create sequence skep.kv_version;
create table skep.kv_entry (
  ns text collate "C" not null
    constraint kv_entry__ns check (ns ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
  key text collate "C" not null
    constraint kv_entry__key check (octet_length(key) between 1 and 512),
  value jsonb not null,
  version bigint not null,            -- 0: locked by a call that has not decided yet; never committed
  expires_at timestamptz,             -- null: never
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint kv_entry__ns_key primary key (ns, key)
);
create index kv_entry__expires_at on skep.kv_entry (expires_at) where expires_at is not null;
