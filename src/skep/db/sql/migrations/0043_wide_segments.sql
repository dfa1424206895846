/*
wide_to: every segment of the partition with more than 8,192 bytes of body ends at or below it. A
pop asks for the sizes of segments only where there may be such, or where it takes very many. Of
what is stored already nothing is known; the first push corrects it to the head of its time.
*/
alter table skep.partition add column wide_to bigint not null default 9223372036854775807;
alter table skep.partition alter column wide_to set default 0;
