-- Credentials, encrypted before they come here. Source: LANGUAGE §11.

create table noetl.credential (
    name         text collate "C" primary key,
    kind         text not null,
    description  text not null,
    tags         text[] not null,
    version      integer not null check (version > 0),
    key_id       text not null,
    sealed       bytea not null,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now()
);
comment on table noetl.credential is 'named secrets; no key to them is kept in this database';
comment on column noetl.credential.version is 'counts the values the name has had; part of what sealed is bound to';
comment on column noetl.credential.key_id is 'which key it is encrypted with';
comment on column noetl.credential.sealed is 'nonce, AES-256-GCM of the value as JSON, tag';
