-- Stores the next version of a credential. Returns no row if another writer came first.
insert into noetl.credential as c (:new.columns)
select :new.name::text, :new.kind::text, :new.description::text, :new.tags::text[], :new.version::int,
       :new.key_id::text, :new.sealed::bytea
where :new.version = 1 or exists (select 1 from noetl.credential where name = :new.name)
on conflict (name) do update
set kind = excluded.kind,
    description = excluded.description,
    tags = excluded.tags,
    version = excluded.version,
    key_id = excluded.key_id,
    sealed = excluded.sealed,
    number = default,
    updated_at = now()
where c.version = excluded.version - 1
returning c.version
