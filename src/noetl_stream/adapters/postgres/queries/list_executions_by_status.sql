-- Status by status, of all executions or path by path: within each, the index has them newest first.
-- Whole rows are compared so that only this index fits: the primary key has the same order, and reading it until enough
-- rows of a rare status are found takes long.
select x.*
from unnest(:statuses::text[]) as wanted (status){paths}
cross join lateral (
    select :listed.columns
    from noetl.execution x
    where ({path}x.status, x.execution_id) < ({given}wanted.status, :above)
      and ({path}x.status, x.execution_id) >= ({given}wanted.status, :lowest)
      and {terms}
      and {conditions}
    order by {path_desc}x.status desc, x.execution_id desc
    limit :limit
) as x
order by execution_id desc
limit :limit
