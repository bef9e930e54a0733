select seq, partition, execution_id, body
from noetl.inbox
where partition = any($1::int[])
order by seq
limit $2
