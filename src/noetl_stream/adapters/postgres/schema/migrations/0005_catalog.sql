-- Playbooks by path and version. Source: LANGUAGE §9 "Pinned to the digest", §12 "playbook".
-- Two at once that register one path meet in the primary key; two texts under one version, in the unique constraint.

create table noetl.catalog (
    path           text collate "C" not null,
    revision       integer not null check (revision > 0),
    version        text collate "C",
    digest         text collate "C" not null references noetl.playbook (digest),
    name           text not null,
    description    text,
    labels         json not null,
    tags           json not null,
    registered_ms  bigint not null,
    registered_by  text not null,
    primary key (path, revision),
    unique (path, version)
);
comment on table noetl.catalog is 'registered playbooks, only ever added to; the highest revision of a path is its latest';
comment on column noetl.catalog.version is 'metadata.version of the text; null: the author gave none';
comment on table noetl.playbook is 'the text of every playbook that was run or registered, by its digest';
