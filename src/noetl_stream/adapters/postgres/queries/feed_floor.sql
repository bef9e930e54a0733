select partition, tick from noetl.feed_floor
