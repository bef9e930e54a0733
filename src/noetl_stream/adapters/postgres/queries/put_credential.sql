-- The next version of a credential, unless another came first: then no row is returned.
insert into noetl.credential as c (name, kind, description, tags, version, key_id, sealed)
select $1::text, $2::text, $3::text, $4::text[], $5::int, $6::text, $7::bytea
where $5 = 1 or exists (select 1 from noetl.credential where name = $1)
on conflict (name) do update
set kind = excluded.kind,
    description = excluded.description,
    tags = excluded.tags,
    version = excluded.version,
    key_id = excluded.key_id,
    sealed = excluded.sealed,
    updated_at = now()
where c.version = excluded.version - 1
returning c.version
