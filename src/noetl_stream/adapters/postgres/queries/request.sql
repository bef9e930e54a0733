select request_id, execution_id, answer, position
from noetl.request
where execution_id = $1 and request_id = $2
