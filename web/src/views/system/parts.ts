import type { Part } from '../../views'

/** A list of the system: where it is, who may see it, which fields are its columns. */
export interface Listing {
  name: string
  path: string
  operation: string
  columns: string[]
  /** Whether a row needs somebody's attention. */
  alarms: (row: Record<string, unknown>) => boolean
  empty: string
}

const never = (): boolean => false

export const LISTINGS: Record<Part, Listing> = {
  pools: {
    name: 'Pools',
    path: '/pools',
    operation: 'listPools',
    columns: ['pool', 'workers', 'slots', 'busy', 'queued', 'running', 'again'],
    alarms: (row) => row['workers'] === 0 && row['queued'] !== 0,
    empty: 'There is no pool yet.',
  },
  workers: {
    name: 'Workers',
    path: '/workers',
    operation: 'listWorkers',
    columns: ['name', 'pool', 'slots', 'busy', 'draining', 'since', 'version'],
    alarms: never,
    empty: 'No worker is alive. Start one: noetl-stream worker',
  },
  partitions: {
    name: 'Partitions',
    path: '/partitions',
    operation: 'listPartitions',
    columns: ['partition', 'owner', 'live', 'epoch', 'folded', 'behind'],
    alarms: (row) => row['live'] === false,
    empty: 'No server has begun.',
  },
  'dead-letters': {
    name: 'Dead letters',
    path: '/dead-letters',
    operation: 'listDeadLetters',
    columns: ['at', 'source', 'state', 'execution_id', 'reason', 'size'],
    alarms: (row) => row['state'] === 'waiting',
    empty: 'There is no dead letter.',
  },
  tokens: {
    name: 'Tokens',
    path: '/tokens',
    operation: 'listTokens',
    columns: ['name', 'role', 'paths', 'created', 'expires', 'last_used', 'revoked'],
    alarms: never,
    empty: 'There is no token.',
  },
  audit: {
    name: 'Audit',
    path: '/audit',
    operation: 'listAudit',
    columns: ['at', 'principal', 'operation', 'target', 'status', 'reason', 'remote'],
    alarms: (row) => row['status'] === 403 || row['status'] === 401,
    empty: 'Nothing was recorded.',
  },
}

/** The rows that need attention first, else in their order. */
export function alarmsFirst(listing: Listing, rows: readonly Record<string, unknown>[]): Record<string, unknown>[] {
  return [...rows.filter((row) => listing.alarms(row)), ...rows.filter((row) => !listing.alarms(row))]
}
