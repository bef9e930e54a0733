insert into noetl.migration (number, name, checksum) values (:number, :name, :checksum)
