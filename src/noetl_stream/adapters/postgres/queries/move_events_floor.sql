update noetl.meta set events_floor = :after where events_floor = :before returning 1
