-- The tables of the schema with their columns, each after those that its foreign keys name, or before if they name it.
with recursive tables as (
    select oid, relname::text as name
    from pg_class
    where relnamespace = 'noetl'::regnamespace and relkind in ('r', 'p') and not relispartition
),
depths as (
    select oid, name, 0 as depth from tables
    union all
    select t.oid, t.name, d.depth + 1
    from depths d
    join pg_constraint c on c.contype = 'f' and c.confrelid = d.oid and c.conrelid <> d.oid
    join tables t on t.oid = c.conrelid
)
select name,
       (select array_agg(attname::text order by attnum) from pg_attribute
        where attrelid = oid and attnum > 0 and not attisdropped and attgenerated = '')
from depths
group by oid, name
order by max(depth), name
