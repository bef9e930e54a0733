select number, name, checksum, (select partitions from noetl.meta) as partitions from noetl.migration order by number
