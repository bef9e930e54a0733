-- Adds an entry and keeps its text. No row comes back when somebody else took the revision or the version first.
with kept as (
    insert into noetl.playbook (digest, path, version, source)
    values ($4, $1, $2, $11)
    on conflict (digest) do nothing
)
insert into noetl.catalog
    (path, version, revision, digest, name, description, labels, tags, registered_ms, registered_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict do nothing
returning revision
