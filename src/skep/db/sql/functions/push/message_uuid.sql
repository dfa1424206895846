-- message_uuid: the wire id of a message.
-- Returns its address as a UUID (version 8), as skep.model.ids spells it.
-- Locks   none.
-- Why     SQL callers get the id that consumers and the HTTP API use.
create function skep.message_uuid(p_partition_id bigint, p_offset bigint) returns uuid
language sql immutable parallel safe as $$
  select (lpad(to_hex(p_partition_id >> 12), 12, '0')
          || '8' || lpad(to_hex(p_partition_id & 4095), 3, '0')
          || to_hex(32768 | (p_offset >> 48))
          || lpad(to_hex(p_offset & 281474976710655), 12, '0'))::uuid;
$$;
