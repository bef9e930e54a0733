select partitions from noetl.meta
