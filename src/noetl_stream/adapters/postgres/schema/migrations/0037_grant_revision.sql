-- What playbooks may use, as admins register it. Gateways add revisions; nobody changes or removes one.

create table noetl.grant_revision (
    revision       integer primary key check (revision > 0),
    source         text not null,
    registered_ms  bigint not null,
    registered_by  text not null
);
comment on table noetl.grant_revision is 'the grants that admins have registered, only ever added to; the highest revision holds';
