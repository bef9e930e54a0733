-- Slots of executions that have ended, or are not there: what gives them back was lost.
select :limit_slots.columns
from noetl.limit_slot s
where not exists (
    select from noetl.execution x
    where x.execution_id = s.execution_id and (x.finished_ms is null or x.finished_ms >= :before_ms)
)
order by limit_id, number
limit :limit
