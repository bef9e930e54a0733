select events_floor from noetl.meta
