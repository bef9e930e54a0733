select digest, path, version, source
from noetl.playbook
where digest = $1
