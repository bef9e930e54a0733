-- Status by status, of all executions or path by path: within that, the index has them newest first.
-- Whole rows are compared so that no other index will do: the primary key has that order, too, and reading it until
-- enough of a rare status are found takes long.
select x.*
from unnest($4::text[]) as wanted (status){paths}
cross join lateral (
    select execution_id, status, path, version, started_ms, finished_ms, digest, updated_ms, error, labels
    from noetl.execution x
    where ({path}x.status, x.execution_id) < ({given}wanted.status, $2)
      and ({path}x.status, x.execution_id) >= ({given}wanted.status, $3)
      and {terms}
      and {conditions}
    order by {path_desc}x.status desc, x.execution_id desc
    limit $1
) as x
order by execution_id desc
limit $1
