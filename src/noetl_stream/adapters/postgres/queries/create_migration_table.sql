create schema if not exists noetl;
create table noetl.migration (
    number      integer primary key,
    name        text not null,
    checksum    text not null,
    applied_at  timestamptz not null default now()
);
comment on table noetl.migration is 'which migration files were applied; checksum: sha256 of the file';
