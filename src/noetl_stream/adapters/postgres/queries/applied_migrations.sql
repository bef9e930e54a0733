select number, name, checksum from noetl.migration order by number
