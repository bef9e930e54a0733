select :object_uses.columns
from noetl.object_use
where owner = :execution_id
order by key, execution_id
