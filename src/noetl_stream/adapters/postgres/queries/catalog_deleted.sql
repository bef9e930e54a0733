select revision from noetl.catalog_deleted where path = :path
