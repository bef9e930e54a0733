-- What ends a state that waits, when nothing comes through EVENTS. Source: PROTOCOL §1 "Inbox", §3 "Segments".

create table noetl.timer (
    execution_id  text collate "C" not null,
    timer_id      text collate "C" not null,
    partition     integer not null,
    due_ms        bigint not null,
    purpose       text not null,
    primary key (execution_id, timer_id)
);
comment on table noetl.timer is 'timers that are set; a row goes in the tick that folds it, or when nothing needs it any more';
comment on column noetl.timer.due_ms is 'ms since 1970 by this database''s clock';
create index timer_due on noetl.timer (partition, due_ms);

create table noetl.inbox (
    seq           bigint generated always as identity primary key,
    id            text collate "C" not null unique,
    partition     integer not null,
    execution_id  text collate "C" not null,
    body          json not null,
    sent_at       timestamptz not null default now()
);
comment on table noetl.inbox is 'messages between executions; a row goes in the tick of the receiver that folds it';
create index inbox_partition on noetl.inbox (partition, seq);

alter table noetl.event add column cause integer;
comment on column noetl.event.cause is 'position of the input a decision follows from; null: an input itself';
alter table noetl.execution add column trace_id text not null default '';
alter table noetl.execution add column commands integer not null default 0;
alter table noetl.execution add column children integer not null default 0;
alter table noetl.execution add column looks_into text;
comment on column noetl.execution.commands is 'commands that are owed an end';
comment on column noetl.execution.children is 'executions it has called and waits for';
comment on column noetl.execution.looks_into is 'the reference it must look into before it decides anything';
