select :inbox_item.columns
from noetl.inbox
where partition = any(:partitions::int[])
order by seq
limit :limit
