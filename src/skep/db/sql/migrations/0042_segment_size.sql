/*
A segment is at most as large as a page, so that a pop of one message reads one page: a flush of
more becomes several rows (ADR 0046). Rows of that size stay in the heap, where a row and its index
entries are all there is to write; a larger one, of a single message, goes out of line as before.
*/
alter table skep.segment set (toast_tuple_target = 8160);
