-- Servers and the formats they read. Source: PROTOCOL §5 "Poison".

create table noetl.server (
    name          text collate "C" primary key,
    version       text not null,
    reads         integer not null,
    live_until    timestamptz not null
);
comment on table noetl.server is 'the servers that there are, and those that were until a day ago';
comment on column noetl.server.reads is 'the newest format it reads';
comment on column noetl.server.live_until is 'it lives until then, unless it says so again';
