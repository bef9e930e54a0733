-- What happened, what was answered, and the playbooks that were run. Source: PROTOCOL §1 "Journal", "Request rows".
-- Ids sort by byte ("C"): a version 7 UUID then sorts by time, whatever the database's language.

create table noetl.event (
    execution_id  text collate "C" not null,
    position      integer not null,
    name          text not null,
    source        text not null,
    at_ms         bigint not null,
    step_run_id   text,
    report_id     text,
    number        integer,
    source_seq    bigint,
    data          json not null,
    primary key (execution_id, position)
);
comment on table noetl.event is 'the journal: facts and decisions in fold order, only ever added to';
comment on column noetl.event.number is 'the number of the event in its run of the command';
comment on column noetl.event.source_seq is 'sequence in EVENTS of the message it came by; null: decided by the server';

create table noetl.request (
    execution_id  text collate "C" not null,
    request_id    text collate "C" not null,
    answer        json not null,
    position      integer not null,
    primary key (execution_id, request_id)
);
comment on table noetl.request is 'the answer to every client request, refused ones too';

create table noetl.playbook (
    digest         text collate "C" primary key,
    path           text not null,
    version        text,
    source         text not null,
    registered_at  timestamptz not null default now()
);
comment on table noetl.playbook is 'the text of every playbook that was run, by its digest';

create view noetl.history as
select execution_id, position, to_timestamp(at_ms / 1000.0) as at, name, source, step_run_id, data
from noetl.event;
comment on view noetl.history is 'the journal for people: times as times';
