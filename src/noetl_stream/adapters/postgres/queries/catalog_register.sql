-- Adds an entry and stores its text. Returns no row if another call took the revision or the version first.
with kept as (
    insert into noetl.playbook (digest, path, version, source)
    values (:entry.digest, :entry.path, :entry.version, :source)
    on conflict (digest) do nothing
)
insert into noetl.catalog (:entry.columns)
values (:entry.values)
on conflict do nothing
returning revision
