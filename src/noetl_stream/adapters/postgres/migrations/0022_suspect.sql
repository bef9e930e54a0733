-- Whose input a server was folding when it died. Source: PROTOCOL §5 "Poison".

alter table noetl.partition add column suspect text;
comment on column noetl.partition.suspect is 'the execution that is folded alone after two crashes; null once its tick is committed';
comment on column noetl.partition.crashes is 'takeovers without a give-back since the last commits that wrote events';
