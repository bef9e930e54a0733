select :playbooks.columns
from noetl.playbook
where digest = :digest
