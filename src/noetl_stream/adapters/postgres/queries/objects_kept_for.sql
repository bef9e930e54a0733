-- Results of executions that are gone, which nobody else's journal names.
select execution_id, key, store, owner
from noetl.object_use used
where execution_id = $1
  and not exists (select from noetl.execution x where x.execution_id = used.owner)
  and not exists (select from noetl.object_use o where o.key = used.key and o.owner = used.owner and o.execution_id <> $1)
order by key
