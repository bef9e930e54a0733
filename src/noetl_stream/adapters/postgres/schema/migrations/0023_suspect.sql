-- Whose input servers were folding when they died. Source: PROTOCOL §5 "Poison".

alter table noetl.partition
    add column folding text,
    add column suspect text,
    add column suspicions integer not null default 0;
comment on column noetl.partition.folding is 'the execution that is folded alone, after crashes; null once its tick is committed';
comment on column noetl.partition.suspect is 'the execution that was folded alone at the last crash that found one';
comment on column noetl.partition.suspicions is 'crashes in a row that found the suspect, since an input of it was folded';
comment on column noetl.partition.crashes is 'takeovers from owners that may have died, since the partition was last sound';
