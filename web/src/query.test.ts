import { expect, test } from 'vitest'
import { queryOf, withStatus } from './query'

const NOW = Date.UTC(2026, 0, 2)

test('a line names statuses, a path, labels, words of the error and an age', () => {
  const { filter, faults } = queryOf('status:failed,running path:team label:env=prod error:"timed out" older-than:1d', NOW)
  expect(faults).toEqual([])
  expect(filter).toEqual({
    status: ['failed', 'running'],
    path: 'team',
    label: ['env=prod'],
    error: 'timed out',
    started_from: null,
    started_before: '2026-01-01T00:00:00.000Z',
  })
})

test('a word alone is a path', () => {
  expect(queryOf('team/report', NOW).filter.path).toBe('team/report')
})

test.each([
  ['status:lost', 'lost is no status'],
  ['label:env', 'expected label:KEY=VALUE'],
  ['older-than:soon', 'expected a time'],
  ['colour:red', 'is no filter'],
  ['path:', 'needs a value'],
])('%s is a fault, which says where it is', (word, message) => {
  const [fault] = queryOf(`path:a ${word}`, NOW).faults
  expect(fault?.message).toContain(message)
  expect([fault?.from, fault?.to]).toEqual([7, 7 + word.length])
})

test('choosing a status puts it into the line, and choosing it again takes it out', () => {
  expect(withStatus('path:a', 'failed')).toBe('status:failed path:a')
  expect(withStatus('status:failed path:a', 'failed')).toBe('path:a')
  expect(withStatus('status:failed path:a', 'running')).toBe('status:running path:a')
})
