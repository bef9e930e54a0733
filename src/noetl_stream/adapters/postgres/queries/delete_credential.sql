delete from noetl.credential where name = $1 returning 1
