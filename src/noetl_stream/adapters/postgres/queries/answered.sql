select execution_id, request_id
from noetl.request
join unnest($1::text[], $2::text[]) as asked (execution_id, request_id) using (execution_id, request_id)
