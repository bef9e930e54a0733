import { expect, test } from 'vitest'
import { ALL, queryOf, refusedWords, withStatus, withWords, wordOf } from './query'

const NOW = Date.UTC(2026, 0, 2)

test('a line names statuses, a path, labels, words of the error and an age', () => {
  const { filter, faults } = queryOf('status:failed,running path:team label:env=prod error:"timed out" older-than:1d', NOW)
  expect(faults).toEqual([])
  expect(filter).toEqual({
    ...ALL,
    status: ['failed', 'running'],
    path: 'team',
    label: ['env=prod'],
    error: 'timed out',
    started_before: '2026-01-01T00:00:00.000Z',
  })
})

test('a line names what an execution was given, where it failed and how long it took', () => {
  const { filter, faults } = queryOf('key:order=A-1 input:order.id=A-1 input:"name=Ann B" failed-step:charge worker:w1 longer-than:15m', NOW)
  expect(faults).toEqual([])
  expect(filter).toEqual({ ...ALL, key: 'order=A-1', input: ['order.id=A-1', 'name=Ann B'], failed_step: 'charge', worker: 'w1', longer_than: '15m' })
})

test.each(['2026-12-20', '2026-12', '2026-12-01..2026-12-20', '2026-12-01..', '..2026-12-20T02:30'])('%s is when executions were due', (due) => {
  expect(queryOf(`due:${due}`, NOW)).toMatchObject({ faults: [], filter: { ...ALL, due } })
})

test('a word alone is a path', () => {
  expect(queryOf('team/report', NOW).filter.path).toBe('team/report')
})

test.each([
  ['status:lost', 'lost is no status'],
  ['label:env', 'expected label:KEY=VALUE'],
  ['input:env', 'expected input:KEY=VALUE'],
  ['longer-than:soon', 'expected a duration'],
  ['due:yesterday', 'expected a day'],
  ['due:..', 'expected a day'],
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

test('times are ages or moments', () => {
  const { filter, faults } = queryOf('since:2h until:2026-01-01T23:00Z', NOW)
  expect(faults).toEqual([])
  expect([filter.started_from, filter.started_before]).toEqual(['2026-01-01T22:00:00.000Z', '2026-01-01T23:00:00.000Z'])
})

test('what the server refuses is said at its word, in its words', () => {
  const { words } = queryOf('path:a since:0000-01-01T00:00Z error:"- -"', NOW)
  expect(refusedWords(words, { detail: 'invalid', errors: [{ detail: 'too early', parameter: 'started_from' }] })).toEqual([
    { from: 7, to: 30, message: 'too early' },
  ])
  const said = "'- -' contains no word to search errors for"
  expect(refusedWords(words, { detail: said })).toEqual([{ from: 31, to: 42, message: said }])
  expect(refusedWords(words, { detail: 'the database is away' })).toEqual([])
})

test('words are set, replaced and taken out', () => {
  expect(withWords('path:a since:2h status:failed', { since: '1h', until: '' })).toBe('path:a status:failed since:1h')
  expect(withWords('path:a since:2h until:1h', { since: '', until: '' })).toBe('path:a')
  expect(withWords('', { path: 'a b' })).toBe('path:"a b"')
})

test('a value is written as a word that means it', () => {
  for (const value of ['order=A-1', 'name=Ann B', 'a=']) expect(queryOf(wordOf('label', value), NOW).filter.label).toEqual([value])
  expect(wordOf('key', 'say "hi"')).toBe('')
})
