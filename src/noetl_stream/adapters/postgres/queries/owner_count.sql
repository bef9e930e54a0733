select count(distinct owner) from noetl.partition where lease_until > now()
