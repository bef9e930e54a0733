select max(generation) from noetl.partition
