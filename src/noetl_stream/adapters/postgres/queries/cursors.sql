select id, last_seq, last_ms, published_tick
from noetl.partition
order by id
