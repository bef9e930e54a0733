select :limit_slots.columns
from noetl.limit_slot
where limit_id = :limit_id and (granted_ms is not null) = :held
order by number
limit :limit
