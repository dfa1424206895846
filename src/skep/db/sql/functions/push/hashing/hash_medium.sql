-- hash_medium: XXH3-128 of 17 to 240 bytes.
-- Returns the 16 bytes of the hash, highest first.
-- Locks   none.
-- Why     See transaction_key. The input is mixed in pairs of 16 bytes, each with its part of the
--         secret: from both ends to the middle up to 128 bytes, from the start above.
create function skep.hash_medium(p_bytes bytea, p_seed bigint) returns bytea
language plpgsql immutable parallel safe as $$
declare
  c_secret constant bytea := '\xb8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f'
    'cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b'
    '532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f'
    '7ec9d9787364eac5ac8334d3ebc3c581a0';
  c_prime1 constant numeric := 11400714785074694791;
  v_size constant integer := length(p_bytes);
  v_low bigint := skep.wrap64(v_size * c_prime1);
  v_high bigint := 0;
  v_seed bigint := p_seed;
  v_steps constant integer := case when v_size <= 128 then (v_size + 31) / 32
                                   else v_size / 32 + 1 end;
  v_one integer;     -- where the two parts of a step begin ...
  v_other integer;
  v_secret integer;  -- ... and its part of the secret
begin
  for v_step in 1..v_steps loop
    if v_size <= 128 then
      v_one := 16 * (v_steps - v_step);
      v_other := v_size - v_one - 16;
      v_secret := 2 * v_one;
    elsif v_step < v_steps then
      v_one := 32 * (v_step - 1);
      v_other := v_one + 16;
      v_secret := case when v_step <= 4 then v_one else v_one - 125 end;
    else
      v_one := v_size - 16;
      v_other := v_size - 32;
      v_secret := 103;
      v_seed := -p_seed;
    end if;
    v_low := skep.wrap64(v_low::numeric + skep.fold64(
        skep.word64(p_bytes, v_one)
          # skep.wrap64(skep.word64(c_secret, v_secret)::numeric + v_seed),
        skep.word64(p_bytes, v_one + 8)
          # skep.wrap64(skep.word64(c_secret, v_secret + 8)::numeric - v_seed)))
      # skep.wrap64(skep.word64(p_bytes, v_other)::numeric
                    + skep.word64(p_bytes, v_other + 8));
    v_high := skep.wrap64(v_high::numeric + skep.fold64(
        skep.word64(p_bytes, v_other)
          # skep.wrap64(skep.word64(c_secret, v_secret + 16)::numeric + v_seed),
        skep.word64(p_bytes, v_other + 8)
          # skep.wrap64(skep.word64(c_secret, v_secret + 24)::numeric - v_seed)))
      # skep.wrap64(skep.word64(p_bytes, v_one)::numeric
                    + skep.word64(p_bytes, v_one + 8));
    if v_size > 128 and v_step = 4 then
      v_low := skep.avalanche64(v_low);
      v_high := skep.avalanche64(v_high);
    end if;
  end loop;
  return int8send(skep.wrap64(-skep.avalanche64(skep.wrap64(
             v_low * c_prime1 + v_high::numeric * 9650029242287828579
             + (v_size - p_seed::numeric) * 14029467366897019727))::numeric))
         || int8send(skep.avalanche64(skep.wrap64(v_low::numeric + v_high)));
end $$;
