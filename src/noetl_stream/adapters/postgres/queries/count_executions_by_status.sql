-- How many at most $1 there are to read.
select count(*)
from unnest($4::text[]) as wanted (status)
cross join lateral (
    select
    from noetl.execution x
    where ({path}x.status, x.execution_id) < ({is}wanted.status, $2)
      and ({path}x.status, x.execution_id) >= ({is}wanted.status, $3)
    limit $1
) as x
