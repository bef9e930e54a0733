delete from noetl.bundle where name = :name and wanted_ms = 0
