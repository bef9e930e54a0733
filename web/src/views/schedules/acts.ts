import type { Act } from '../../acts'
import { segment } from '../../api/client'
import type { RegisteredSchedule } from '../../api/types'

/** Changes of a schedule: what is sent, and the same as a line of the shell. */

export type Overlap = RegisteredSchedule['overlap']
export const OVERLAPS: readonly Overlap[] = ['queue_all', 'queue_one', 'skip', 'cancel', 'terminate', 'allow']

const asks = (path: string, verb: 'pause' | 'resume' | 'trigger'): Act => ({
  method: 'POST',
  path: `/schedules/${segment(path)}/${verb}`,
  cli: ['noetl-stream', 'schedule', verb, path],
})

export const pauses = (path: string): Act => asks(path, 'pause')
export const resumes = (path: string): Act => asks(path, 'resume')
export const triggers = (path: string): Act => asks(path, 'trigger')

export const deletes = (path: string): Act => ({
  method: 'DELETE',
  path: `/schedules/${segment(path)}`,
  cli: ['noetl-stream', 'schedule', 'delete', path],
})

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

export const backfills = (path: string, range: Range, overlap: Overlap): Act => ({
  method: 'POST',
  path: `/schedules/${segment(path)}/backfill`,
  body: { ...range, overlap },
  cli: ['noetl-stream', 'schedule', 'backfill', path, '--from', range.from, '--until', until(range), '--overlap', overlap],
})
