-- transaction_key: the 16-byte key of a transaction id.
-- Takes   p_transaction_id: at most 240 bytes in UTF-8; p_seed: the installation's.
-- Returns the key as brokers compute it.
-- Raises  SK400 for an id that is empty or longer.
-- Locks   none.
-- Why     Brokers must recognise what SQL pushes, as duplicates and in acks. The hash is XXH3-128,
--         which PostgreSQL does not have; ids up to 240 bytes need only its simple cases. It takes
--         about 0.1 ms: much for a broker, little for a user's transaction.
create function skep.transaction_key(p_transaction_id text, p_seed bigint) returns bytea
language plpgsql immutable parallel safe as $$
declare
  v_bytes constant bytea := convert_to(p_transaction_id, 'UTF8');
begin
  if length(v_bytes) not between 1 and 240 then
    raise exception using errcode = 'SK400',
      message = 'a transaction id pushed by SQL has 1 to 240 bytes; skep.stage takes longer ones';
  end if;
  return case when length(v_bytes) <= 16 then skep.hash_short(v_bytes, p_seed)
              else skep.hash_medium(v_bytes, p_seed) end;
end $$;
