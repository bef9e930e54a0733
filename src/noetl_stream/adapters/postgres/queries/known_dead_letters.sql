select id
from noetl.dead_letter
where id = any(:ids::text[])
