-- wrap64: the lowest 64 bits of a number.
-- Takes   p_number: an integer of any size and sign.
-- Returns the bits as a bigint, negative if the highest bit is set.
-- Locks   none.
-- Why     Hashes compute modulo 2^64; bigint arithmetic raises an error instead of wrapping.
create function skep.wrap64(p_number numeric) returns bigint
language plpgsql immutable parallel safe as $$
declare
  v_rest constant numeric := mod(p_number, 18446744073709551616);
begin
  return case when v_rest >= 9223372036854775808 then v_rest - 18446744073709551616
              when v_rest < -9223372036854775808 then v_rest + 18446744073709551616
              else v_rest end;
end $$;
