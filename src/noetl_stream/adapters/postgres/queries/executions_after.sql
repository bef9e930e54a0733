-- The executions and aggregates that anything of a partition names, also those that do not exist yet.
select execution_id
from (
    select execution_id from noetl.execution where execution_id > :after
    union
    select id from noetl.aggregate where id > :after
    union
    select execution_id from noetl.inbox where execution_id > :after
    union
    select execution_id from noetl.dead_letter where execution_id > :after
) as named
order by execution_id
limit :limit
