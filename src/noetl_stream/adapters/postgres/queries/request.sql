select :requests.columns
from noetl.request
where execution_id = :execution_id and request_id = :request_id
