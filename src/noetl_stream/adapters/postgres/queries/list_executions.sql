-- Conditions are inserted only if wanted: one that may be null would keep its index from being used.
select :listed.columns
from noetl.execution x
where execution_id < :above
  and execution_id >= :lowest
  and {conditions}
order by execution_id desc
limit :limit
