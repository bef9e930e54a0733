import type { Part } from '../../views'

/** Of each part its name, and the operation that whoever looks at it must be allowed. */
export const PART_OF: Record<Part, { name: string; operation: string }> = {
  health: { name: 'Health', operation: 'listPools' },
  pools: { name: 'Pools', operation: 'listPools' },
  limits: { name: 'Limits', operation: 'listLimits' },
  workers: { name: 'Workers', operation: 'listWorkers' },
  partitions: { name: 'Partitions', operation: 'listPartitions' },
  'dead-letters': { name: 'Dead letters', operation: 'listDeadLetters' },
  credentials: { name: 'Credentials', operation: 'listCredentials' },
  tokens: { name: 'Tokens', operation: 'listTokens' },
  audit: { name: 'Audit', operation: 'listAudit' },
  storage: { name: 'Storage', operation: 'listStorage' },
}
