delete from noetl.credential where name = :name returning 1
