-- kv: the keys that exist now, for people and for plain SQL. To write, call skep.kv_put,
-- skep.kv_put_if_absent, skep.kv_incr and skep.kv_delete.
create view skep.kv as
select e.ns, e.key, e.value, e.version, e.expires_at, e.created_at, e.updated_at
from skep.kv_entry e
where e.expires_at is null or e.expires_at > skep.now();
