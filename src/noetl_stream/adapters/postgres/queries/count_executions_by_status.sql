-- How many at most $1 there are to read.
select count(*)
from unnest($4::text[]) as wanted (status){paths}
cross join lateral (
    select
    from noetl.execution x
    where ({path}x.status, x.execution_id) < ({given}wanted.status, $2)
      and ({path}x.status, x.execution_id) >= ({given}wanted.status, $3)
    limit $1
) as x
