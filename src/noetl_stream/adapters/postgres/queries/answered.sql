select execution_id, request_id
from noetl.request
join unnest(:execution_ids::text[], :request_ids::text[]) as asked (execution_id, request_id) using (execution_id, request_id)
