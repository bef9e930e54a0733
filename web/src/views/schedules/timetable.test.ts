import { expect, test } from 'vitest'
import { inItsZone, stateOf, timetable } from './timetable'

const never = { timezone: 'UTC', cron: [], every_s: null, at: [] }

test('a schedule says when it is due in the words of its document', () => {
  expect(timetable({ timetable: { ...never, cron: ['0 2 * * *', '0 4 * * SAT'] } })).toBe('0 2 * * *, 0 4 * * SAT')
  expect(timetable({ timetable: { ...never, every_s: 5400 } })).toBe('every 1 h 30 min')
  expect(timetable({ timetable: { ...never, at: ['2026-01-01T00:00:00Z'] } })).toBe('once')
})

test('a time is told by the clock of its zone, unless that is UTC', () => {
  expect(inItsZone('2026-11-24T02:30:00+01:00', 'Europe/Berlin')).toBe('(02:30 in Europe/Berlin)')
  expect(inItsZone('2026-11-24T01:30:00+00:00', 'UTC')).toBe('')
})

test('what runs, waits and is left comes first; one that is due no more has ended', () => {
  const idle = { running: [], waiting: 0, next: '2026-11-24T01:30:00Z', backfill: null }
  expect(stateOf(idle)).toBe('')
  expect(stateOf({ ...idle, next: null })).toBe('over')
  expect(stateOf({ ...idle, running: ['1'], waiting: 2 })).toBe('1 running, 2 waiting')
})
