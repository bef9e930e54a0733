select :lease.columns
from noetl.partition
where owner = :owner
order by id
