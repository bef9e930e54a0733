select name, coalesce(from_id, ''), to_id from noetl.event_month order by to_id
