-- Keeps the bundles that texts name, and begins to delete those that none has named since a time: returns these.
-- A digest counts wherever it stands in a text: rather one too many is kept.
with texts as materialized (
    select p.digest, p.path, found[1] as bundle
    from noetl.playbook p cross join lateral regexp_matches(p.source, '@([0-9a-f]{64})', 'g') as found
    where p.source ~ '@[0-9a-f]{64}'
),
wanted as materialized (
    select distinct b.name
    from noetl.bundle b join texts t on t.bundle = right(b.name, 64)
    where exists (
        select from noetl.catalog c
        where c.digest = t.digest and (
            c.version is not null
            or not exists (select from noetl.catalog n where n.path = c.path and n.revision > c.revision)
        )
    )
    or exists (select from noetl.execution e where e.path = t.path and e.digest = t.digest)
),
renewed as (
    update noetl.bundle b set wanted_ms = :now_ms
    from wanted w where b.name = w.name and b.wanted_ms > 0
)
update noetl.bundle b set wanted_ms = 0
where b.wanted_ms = 0 or (b.wanted_ms < :before_ms and not exists (select from wanted w where w.name = b.name))
returning b.name
