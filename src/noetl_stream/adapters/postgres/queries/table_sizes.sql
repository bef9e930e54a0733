-- What each table takes, its partitions together. A table that was never analysed has -1 rows: nobody knows how many.
select coalesce(parent.relname, one.relname)::text as name,
       sum(pg_total_relation_size(one.oid))::bigint as size_bytes,
       sum(one.reltuples) filter (where one.reltuples >= 0)::bigint as rows
from pg_class as one
left join pg_inherits on inhrelid = one.oid
left join pg_class as parent on parent.oid = inhparent
where one.relnamespace = 'noetl'::regnamespace and one.relkind = 'r'
group by 1
order by 1
