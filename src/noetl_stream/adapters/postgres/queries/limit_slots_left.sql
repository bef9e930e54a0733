-- Slots of executions that are over, or are not there: what gives them back was lost.
select :limit_slot.columns
from noetl.limit_slot s
left join noetl.execution x on x.execution_id = s.execution_id
where x.finished_ms < :before_ms or x.execution_id is null
order by s.limit_id, s.number
limit :limit
