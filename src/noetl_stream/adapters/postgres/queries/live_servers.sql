select name, version, reads, true as live from noetl.server where live_until > now() order by name
