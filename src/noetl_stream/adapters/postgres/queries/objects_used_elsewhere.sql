-- An execution that is being deleted uses nothing any more.
select :object_uses.columns
from noetl.object_use used
where owner = :execution_id
  and exists (select from noetl.event e where e.execution_id = used.execution_id and e.position = 1)
order by key, execution_id
