-- hash_short: XXH3-128 of 1 to 16 bytes.
-- Returns the 16 bytes of the hash, highest first.
-- Locks   none.
-- Why     See transaction_key. The constants are those of the algorithm: primes, and words of its
--         secret combined as each of the three cases needs them.
create function skep.hash_short(p_bytes bytea, p_seed bigint) returns bytea
language plpgsql immutable parallel safe as $$
declare
  c_prime1 constant numeric := 11400714785074694791;
  c_prime2 constant numeric := 14029467366897019727;
  c_prime3 constant numeric := 1609587929392839161;
  v_size constant integer := length(p_bytes);
  v_seed bigint := p_seed;
  v_first bigint;
  v_last bigint;
  v_low bigint;
  v_high bigint;
  v_product numeric;
begin
  if v_size <= 3 then
    v_low := (get_byte(p_bytes, 0)::bigint << 16) | (get_byte(p_bytes, v_size >> 1)::bigint << 24)
             | get_byte(p_bytes, v_size - 1) | (v_size << 8);
    -- The upper half starts with the same four bytes, reversed and rotated by 13 bits.
    v_high := ((v_low & 255) << 24) | ((v_low & 65280) << 8) | ((v_low >> 8) & 65280)
              | (v_low >> 24);
    v_high := ((v_high << 13) | (v_high >> 19)) & 4294967295;
    v_low := v_low # skep.wrap64(2267503259 + p_seed::numeric);
    v_high := v_high # skep.wrap64(808198283 - p_seed::numeric);
    v_low := skep.wrap64((v_low # skep.shift64(v_low, 33)) * c_prime2);
    v_low := skep.wrap64((v_low # skep.shift64(v_low, 29)) * c_prime3);
    v_low := v_low # skep.shift64(v_low, 32);
    v_high := skep.wrap64((v_high # skep.shift64(v_high, 33)) * c_prime2);
    v_high := skep.wrap64((v_high # skep.shift64(v_high, 29)) * c_prime3);
    v_high := v_high # skep.shift64(v_high, 32);
  elsif v_size <= 8 then
    v_seed := p_seed # (skep.word64(int8send(p_seed), 4, 4) << 32);
    v_first := skep.word64(p_bytes, 0, 4) | (skep.word64(p_bytes, v_size - 4, 4) << 32);
    v_first := v_first # skep.wrap64(-4255862940314790740 + v_seed::numeric);
    v_product := skep.unsigned64(v_first) * (c_prime1 + (v_size << 2));
    v_low := skep.wrap64(v_product);
    v_high := skep.wrap64(div(v_product, 18446744073709551616) + v_low::numeric * 2);
    v_low := v_low # skep.shift64(v_high, 3);
    v_low := skep.wrap64((v_low # skep.shift64(v_low, 35)) * 11507291218515648293);
    v_low := v_low # skep.shift64(v_low, 28);
    v_high := skep.avalanche64(v_high);
  else
    v_first := skep.word64(p_bytes, 0);
    v_last := skep.word64(p_bytes, v_size - 8);
    v_product := skep.unsigned64(
      v_first # v_last # skep.wrap64(6455697860950631241 - p_seed::numeric)) * c_prime1;
    v_low := skep.wrap64(v_product + ((v_size - 1)::bigint << 54));
    v_last := v_last # skep.wrap64(-4466874330221494952 + p_seed::numeric);
    v_high := skep.wrap64(div(v_product, 18446744073709551616) + v_last
                          + (v_last & 4294967295)::numeric * 2246822518);
    v_low := v_low # skep.word64(int8send(v_high), 0);
    v_product := skep.unsigned64(v_low) * c_prime2;
    v_low := skep.avalanche64(skep.wrap64(v_product));
    v_high := skep.avalanche64(
      skep.wrap64(div(v_product, 18446744073709551616) + v_high * c_prime2));
  end if;
  return int8send(v_high) || int8send(v_low);
end $$;
