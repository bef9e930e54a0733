select id, epoch, tick, published_tick, last_seq, last_ms, crashes, generation
from noetl.partition
where owner = $1
order by id
