-- Returns a row if the grants have changed.
update noetl.meta set grants = :grants where grants <> :grants returning 1
