select :aggregates.columns
from noetl.aggregate
where id = any(:ids::text[])
