select number, :dead_letters.columns, state, settled_ms, settled_by
from noetl.dead_letter
where id = :letter_id
