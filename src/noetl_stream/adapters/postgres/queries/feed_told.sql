select partition, tick from noetl.feed_reader where reader = :reader
