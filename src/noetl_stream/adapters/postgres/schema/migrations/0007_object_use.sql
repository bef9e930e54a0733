-- Whose results an execution's journal names beside its own. Source: PROTOCOL §3 "Object keys".

create table noetl.object_use (
    execution_id  text collate "C" not null,
    key           text collate "C" not null,
    store         text not null,
    owner         text collate "C" not null,
    primary key (execution_id, key)
);
comment on table noetl.object_use is 'results of other executions that a journal names: they are kept as long as it is';
comment on column noetl.object_use.store is 'nats: one object; journal: what the owner''s journal holds and uses';
comment on column noetl.object_use.owner is 'the execution whose result it is';
create index object_use_owner on noetl.object_use (owner);

-- What was taken over before there was this table.
insert into noetl.object_use (execution_id, key, store, owner)
select execution_id, key, store, split_part(key, case store when 'nats' then '/' else '.' end, 1)
from noetl.event,
     json_to_record(data #> '{outcome,result,reference}') as reference (key text, store text)
where name = 'child.finished' and key is not null
on conflict do nothing;
