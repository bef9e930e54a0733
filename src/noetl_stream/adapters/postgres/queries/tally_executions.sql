-- Counts by status and key, status by status and path by path as lists are: of each the newest, up to a limit. Where the
-- key is of the index, too, no row of the table is read.
select x.status, {key} as key, count(*)
from (
    select x.*
    from unnest(:statuses::text[]) as wanted (status){paths}
    cross join lateral (
        select {columns}
        from noetl.execution x
        where ({path}x.status, x.execution_id) < ({given}wanted.status, :above)
          and ({path}x.status, x.execution_id) >= ({given}wanted.status, :lowest)
          and {terms}
          and {conditions}
        order by {path_desc}x.status desc, x.execution_id desc
        limit :limit
    ) as x
    limit :total
) as x
group by x.status, key
