select :entry.columns
from noetl.catalog
where path = :path
order by revision desc
