-- Slots of limits by key: who holds one, and who waits for one. Source: LANGUAGE §15 "Flow control".

create table noetl.limit_slot (
    limit_id      text collate "C" not null,
    holder        text collate "C" not null,
    number        bigint not null,
    execution_id  text collate "C" not null,
    granted_ms    bigint,
    yields        integer not null,
    body          json not null,
    primary key (limit_id, holder)
);
comment on table noetl.limit_slot is 'slots of limits by key: held since granted_ms, or waited for';
comment on column noetl.limit_slot.holder is 'a step run, or an execution as a whole';
comment on column noetl.limit_slot.number is 'its place among all that asked';
comment on column noetl.limit_slot.yields is '1 if a newer execution may take its place';
create index limit_slot_waiting on noetl.limit_slot (limit_id, number) where granted_ms is null;
create index limit_slot_yielding on noetl.limit_slot (limit_id, number) where yields = 1;
create index limit_slot_execution on noetl.limit_slot (execution_id);
