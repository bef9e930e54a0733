-- Results of deleted executions that no other journal names.
select :object_uses.columns
from noetl.object_use used
where execution_id = :execution_id
  and not exists (select from noetl.execution x where x.execution_id = used.owner)
  and not exists (
      select from noetl.object_use o
      where o.key = used.key and o.owner = used.owner and o.execution_id <> :execution_id
  )
order by key
