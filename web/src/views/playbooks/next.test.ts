import { expect, test } from 'vitest'
import { nextStarts } from './next'

test('a playbook starts next when the first of its schedules is due', () => {
  const schedules = [
    { path: 'late', playbook: 'a', next: '2026-01-02T00:00:00.000Z' },
    { path: 'soon', playbook: 'a', next: '2026-01-01T00:00:00.000Z' },
    { path: 'paused', playbook: 'b', next: null },
  ]
  expect([...nextStarts(schedules)]).toEqual([['a', { at: '2026-01-01T00:00:00.000Z', schedule: 'soon' }]])
})
