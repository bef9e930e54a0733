select id, tick from noetl.partition
