/*
wrap64: the lowest 64 bits of a number, as PostgreSQL can store them.

Takes   p_number, an integer of any size and sign.
Returns these bits as a bigint, which is negative when the highest of them is set.
Locks   none.
Why     Hashes calculate modulo 2^64; bigint arithmetic raises an error instead of wrapping.
*/
create function skep.wrap64(p_number numeric) returns bigint
language sql immutable parallel safe as $$
  select (case when r.rest >= 9223372036854775808 then r.rest - 18446744073709551616
               when r.rest < -9223372036854775808 then r.rest + 18446744073709551616
               else r.rest end)::bigint
  from (select mod(p_number, 18446744073709551616) as rest) r;
$$;
