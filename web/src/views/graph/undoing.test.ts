import { expect, test } from 'vitest'
import type { TimelineRow } from 'noetl-stream-client'
import type { StepState } from './passed'
import { undoingIn, undoingOf, undoneBy } from './undoing'

const states = (status: string, runs = 1): Map<string, StepState> =>
  new Map([['charge__compensation', { status, runs, places: {}, iterations: null, waits: [] }]])
const ended = (undone: boolean, reason = '') => ({ step: 'charge', step_run_id: 'r', undone, reason })

test('a step says what undoes it, and how far that is', () => {
  expect(undoingOf('charge', ['http', 'noop'], new Map(), [])).toEqual({ status: '', words: 'Can be undone, by http, noop' })
  expect(undoingOf('ship', [], states('done'), [ended(true)])).toBeNull()
  expect(undoingOf('charge', ['http'], states('running'), [])).toEqual({ status: 'running', words: 'Being undone' })
  expect(undoingOf('charge', ['http'], states('done', 2), [])).toEqual({ status: 'done', words: 'Undone, all 2 runs' })
  expect(undoingOf('charge', ['http'], states('failed'), [])?.status).toBe('failed')
})

test('at the end it says what was not undone, and why', () => {
  expect(undoingOf('charge', ['http'], states('done'), [ended(true)])).toEqual({ status: 'done', words: 'Undone' })
  const both = [ended(true), ended(false, 'it was stopped')]
  expect(undoingOf('charge', ['http'], states('done'), both)).toEqual({ status: 'failed', words: 'Not undone, 1 of 2 runs: it was stopped' })
  expect(undoingOf('call', [], undefined, [{ ...ended(true), step: 'call' }])).toEqual({ status: 'done', words: 'Undone' })
})

test('a timeline tells the same by its rows, until the end says more', () => {
  const row = (step: string, status: string): TimelineRow => ({ kind: 'step', step, task: '', count: 1, spans: [{ status }], activity: null }) as unknown as TimelineRow
  const rows = [row('charge', 'done'), row('ship', 'failed'), row('charge__compensation', 'running')]
  expect([...undoingIn(rows, ['charge', 'ship'], [])]).toEqual([
    ['charge', { status: 'running', words: 'Being undone' }],
    ['ship', { status: '', words: 'Can be undone' }],
  ])
  expect([...undoingIn(rows, [], [ended(true)]).values()]).toEqual([{ status: 'done', words: 'Undone' }])
})

test('a compensation is known by its name', () => {
  expect([undoneBy('charge__compensation'), undoneBy('charge')]).toEqual(['charge', null])
})
