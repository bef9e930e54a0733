-- How many rows a lookup by status and path would read, counted up to a limit.
select count(*)
from unnest(:statuses::text[]) as wanted (status){paths}
cross join lateral (
    select
    from noetl.execution x
    where ({path}x.status, x.execution_id) < ({given}wanted.status, :above)
      and ({path}x.status, x.execution_id) >= ({given}wanted.status, :lowest)
    limit :limit
) as x
