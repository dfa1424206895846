-- fold64: the 128-bit product of two 64-bit numbers, folded to 64 bits.
-- Returns the lower half xor the upper half.
-- Locks   none.
-- Why     The step of XXH3 that mixes its input.
create function skep.fold64(p_one bigint, p_other bigint) returns bigint
language plpgsql immutable parallel safe as $$
declare
  v_product constant numeric := skep.unsigned64(p_one) * skep.unsigned64(p_other);
begin
  return skep.wrap64(v_product) # skep.wrap64(div(v_product, 18446744073709551616));
end $$;
