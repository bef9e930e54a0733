select execution_id, key, store, owner
from noetl.object_use
where owner = $1
order by key, execution_id
