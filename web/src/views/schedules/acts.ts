import { act, type Act } from '../../acts'
import type { RegisteredSchedule } from 'noetl-stream-client'

/** Changes that only schedules have. */

export type Overlap = RegisteredSchedule['overlap']
export const OVERLAPS: readonly Overlap[] = ['queue_all', 'queue_one', 'skip', 'cancel', 'terminate', 'allow']

export const runsNow = (path: string): Act => act('triggerSchedule', { path }, ['noetl-stream', 'schedule', 'run-now', path])

/** From an instant up to before another, in UTC. */
interface Range {
  from: string
  before: string
}

/** Null while the range is not one. Times are what a field for local times holds, in this browser's zone. */
export function rangeOf(from: string, before: string): Range | null {
  const [first, last] = [new Date(from), new Date(before)]
  if (Number.isNaN(first.valueOf()) || Number.isNaN(last.valueOf()) || first >= last) return null
  return { from: first.toISOString(), before: last.toISOString() }
}

/** The last second of the range: `--until` includes its time, and occurrences are at whole seconds. */
const until = (range: Range): string => new Date(Date.parse(range.before) - 1000).toISOString()

export const backfills = (path: string, range: Range, overlap: Overlap): Act => {
  const options = ['--from', range.from, '--until', until(range), '--overlap', overlap]
  return act('backfillSchedule', { path, ...range, overlap }, ['noetl-stream', 'schedule', 'backfill', path, ...options])
}
