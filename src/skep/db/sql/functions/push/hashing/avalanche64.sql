-- avalanche64: the final mixing step of XXH3.
-- Returns 64 bits.
-- Locks   none.
-- Why     Lets every bit affect every other.
create function skep.avalanche64(p_bits bigint) returns bigint
language plpgsql immutable parallel safe as $$
declare
  v_mixed constant bigint := skep.wrap64(
    (p_bits # skep.shift64(p_bits, 37))::numeric * 1609587791953885689);
begin
  return v_mixed # skep.shift64(v_mixed, 32);
end $$;
