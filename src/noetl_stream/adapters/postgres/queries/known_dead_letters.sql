select id
from noetl.dead_letter
where id = any(:letter_ids::text[])
