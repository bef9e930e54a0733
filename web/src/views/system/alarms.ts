import type { Check, Partition, Pool } from 'noetl-stream-client'
import { PARTS, type Part, type View } from '../../views'

/** From so many messages on that are not folded yet, servers do not keep up. */
const MUCH_BEHIND = 10_000
const RANKS: Check['verdict'][] = ['wrong', 'warning', 'skipped', 'ok']

/** What needs somebody first. */
export function worstFirst(checks: readonly Check[]): Check[] {
  return [...checks].sort((a, b) => RANKS.indexOf(a.verdict) - RANKS.indexOf(b.verdict))
}

export const isAlarm = (one: Check): boolean => one.verdict === 'wrong' || one.verdict === 'warning'

/** Where the things are that a check is about, outside of the system's own parts. */
export const ELSEWHERE: Record<string, { name: string; view: View }> = {
  triggers: { name: 'Triggers', view: { screen: 'triggers' } },
  quarantined: { name: 'Quarantined executions', view: { screen: 'executions', query: 'status:quarantined' } },
}

/** The part of the system that shows what a check is about, if one does. */
export function partOf(check: string): Part | undefined {
  const found: Record<string, Part> = { fold: 'partitions', streams: 'storage', keys: 'credentials', servers: 'partitions' }
  return found[check] ?? PARTS.find((part) => part === check)
}

const many = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

/** What pools and partitions say is wrong, for those who may not ask the doctor. */
export function checksOf(pools: readonly Pool[], partitions: readonly Partition[]): Check[] {
  return [poolCheck(pools), partitionCheck(partitions), foldCheck(partitions)]
}

function poolCheck(pools: readonly Pool[]): Check {
  const unserved = pools.filter((one) => one.queued > 0 && one.workers === 0)
  const queued = pools.reduce((sum, one) => sum + one.queued, 0)
  if (unserved.length === 0) return { check: 'pools', verdict: 'ok', says: `${many(queued, 'command')} waiting, and each pool with some has a worker` }
  return {
    check: 'pools',
    verdict: 'wrong',
    says: `commands wait without a worker: ${unserved.map((one) => `${one.queued} in ${one.pool}`).join(', ')}`,
    mend: unserved.map((one) => `noetl-stream worker --pool ${one.pool}`).join('; '),
  }
}

function partitionCheck(partitions: readonly Partition[]): Check {
  const free = partitions.filter((one) => !one.live)
  if (free.length === 0) return { check: 'partitions', verdict: 'ok', says: `each of ${many(partitions.length, 'partition')} has a server` }
  return { check: 'partitions', verdict: 'wrong', says: `${free.length} of ${many(partitions.length, 'partition')} without a server`, mend: 'noetl-stream server' }
}

function foldCheck(partitions: readonly Partition[]): Check {
  const behind = partitions.reduce((sum, one) => sum + one.behind, 0)
  const says = `${many(behind, 'message')} not folded yet`
  if (behind <= MUCH_BEHIND) return { check: 'fold', verdict: 'ok', says }
  return { check: 'fold', verdict: 'warning', says, mend: 'add a server, if this does not pass' }
}
