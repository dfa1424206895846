/*
word64: eight bytes of a text as a number, the lowest byte first.

Takes   p_bytes; p_at: where they begin, from 0. p_size: how many, up to 8; what is missing is 0.
Returns their bits.
Locks   none.
Why     Hashes read their input this way round; PostgreSQL's own casts read the highest first.
*/
create function skep.word64(p_bytes bytea, p_at integer, p_size integer default 8) returns bigint
language sql immutable parallel safe as $$
  select bit_or(get_byte(p_bytes, p_at + b.number)::bigint << (8 * b.number))
  from generate_series(0, p_size - 1) b(number);
$$;
