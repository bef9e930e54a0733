select :inbox_item.columns
from noetl.inbox
where partition = any(:partition_ids::int[])
order by seq
limit :limit
