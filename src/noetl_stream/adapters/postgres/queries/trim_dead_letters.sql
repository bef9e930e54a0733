select noetl.trim_dead_letters(:most, :most_bytes, :before_ms, :at_once)
