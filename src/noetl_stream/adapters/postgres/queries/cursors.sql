select id, last_seq, last_ms
from noetl.partition
order by id
