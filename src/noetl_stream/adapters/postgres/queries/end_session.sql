delete from noetl.browser_session where session_hash = :session_hash
