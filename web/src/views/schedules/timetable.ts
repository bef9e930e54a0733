import type { RegisteredSchedule } from 'noetl-stream-client'
import { duration } from '../../times'

/** When a schedule is due, in a few words: those of its document. */
export function timetable({ timetable: { cron, every_s, at } }: Pick<RegisteredSchedule, 'timetable'>): string {
  if (cron.length > 0) return cron.join(', ')
  if (every_s !== null) return `every ${duration(every_s)}`
  return at.length === 1 ? 'once' : `${at.length} times`
}

/** A time in the zone of its schedule, as the clock on the wall there shows it; nothing for UTC. */
export const inItsZone = (at: string, zone: string): string => (zone === 'UTC' ? '' : `(${at.slice(11, 16)} in ${zone})`)

/** What somebody must know of it at once, unless it is paused. */
export function stateOf(one: Pick<RegisteredSchedule, 'running' | 'waiting' | 'next' | 'backfill'>): string {
  const said = [
    one.running.length > 0 ? `${one.running.length} running` : '',
    one.waiting > 0 ? `${one.waiting} waiting` : '',
    one.backfill ? `${one.backfill.left} to backfill` : '',
  ].filter(Boolean)
  return said.length > 0 ? said.join(', ') : one.next === null ? 'over' : ''
}
