select x.execution_id
from noetl.execution_key k
join noetl.execution x on x.execution_id = k.execution_id and x.key = k.key
where k.path = :path and k.key = :key
