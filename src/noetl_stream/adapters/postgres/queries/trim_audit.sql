select noetl.trim_audit(:before_ms)
