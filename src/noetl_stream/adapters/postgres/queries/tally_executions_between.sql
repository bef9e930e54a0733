-- Counts by status, path by path if any, and by which two ids they lie between: each is a range of an index, and no row of
-- the table is read.
select wanted.status, part.number::text, sum(found.executions)::bigint
from unnest(:statuses::text[]) as wanted (status){paths}
cross join unnest(:firsts::text[], :ends::text[]) with ordinality as part (first, above, number)
cross join lateral (
    select count(*) as executions
    from (
        select
        from noetl.execution x
        where ({path}x.status, x.execution_id) < ({given}wanted.status, part.above)
          and ({path}x.status, x.execution_id) >= ({given}wanted.status, part.first)
        limit :limit
    ) as counted
) as found
where found.executions > 0
group by wanted.status, part.number
