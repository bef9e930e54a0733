-- Results of executions that are deleted, or being deleted, that no other journal names.
select :object_uses.columns
from noetl.object_use used
where execution_id = :execution_id
  and not exists (select from noetl.event e where e.execution_id = used.owner and e.position = 1)
  and not exists (
      select from noetl.object_use o join noetl.event e on e.execution_id = o.execution_id and e.position = 1
      where o.key = used.key and o.owner = used.owner and o.execution_id <> :execution_id
  )
order by key
