-- error_line: the line of an error that says what was wrong.
-- Takes   p_error: as a program told it.
-- Returns the last line of a Python traceback, the first line of anything else, 500 characters at most.
-- Why     Errors are counted by it: tracebacks differ in their frames, and a list shows one line.
create function skep.error_line(p_error text) returns text
language sql immutable as $$
  select left(
    case when p_error like '%Traceback (most recent call last):%'
         then substring(rtrim(p_error, E' \n\r\t') from '[^\n]*$')
         else split_part(ltrim(p_error, E' \n\r\t'), E'\n', 1) end, 500);
$$;
