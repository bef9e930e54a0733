import { expect, test } from 'vitest'
import type { PlacedToken, Reason } from 'noetl-stream-client'
import { statesNow, type StepState } from './passed'
import { aheadOf, arcLines, stepLines } from './words'

const ARCS = [
  { from: 'a', to: 'b' },
  { from: 'b', to: 'c' },
  { from: 'c', to: 'b' },
  { from: 'a', to: 'other' },
]
const at = (places: StepState['places']): StepState => ({ status: 'waiting', runs: 1, places, iterations: null, waits: [] })
const reason = (kind: string, sentence: string): Reason => ({ kind, sentence, step: 'b' }) as Reason

test('what tokens lead to may still run, whatever guards say', () => {
  expect(aheadOf(ARCS, new Map([['b', at({ held: 1 })]]))).toEqual(new Set(['b', 'c']))
  expect(aheadOf(ARCS, new Map([['a', at({})]]))).toBeNull()
  expect(aheadOf(ARCS, undefined)).toBeNull()
})

test('a step says how it is, where its tokens are and what they wait for', () => {
  const ahead = new Set(['b', 'c'])
  const state = { ...at({ admission: 2 }), waits: ['ctx.go is missing'] }
  expect(stepLines('b', state, ahead)).toEqual(['b: waiting, 1 run', 'Tokens: 2 admission', 'ctx.go is missing', 'May run again'])
  expect(stepLines('c', undefined, ahead)).toEqual(['c: has not run, may still run'])
  expect(stepLines('other', undefined, ahead)).toEqual(['other: has not run, and no token leads to it'])
  expect(stepLines('c', undefined, null)).toEqual(['c: has not run'])
})

test('a step has the status that the server gives it, whatever its reasons are', () => {
  const places = { running: 1 } as Record<PlacedToken['place'], number>
  const activity = [{ step: 'b', status: 'running' as const, runs: { running: 1 }, iterations: null, places }]
  expect(statesNow(activity, [reason('slot', 'no `slot`'), reason('join', 'two')]).get('b')).toMatchObject({
    status: 'running',
    waits: ['no slot', 'two'],
  })
})

test('an arc says its guard and what decided', () => {
  const arc = { from: 'a', to: 'b', when: '{{ ctx.go }}' }
  expect(arcLines(arc, { fired: 1, words: 'taken once' })).toEqual(['a to b', 'when {{ ctx.go }}', 'taken once'])
  expect(arcLines({ ...arc, when: null }, undefined)).toEqual(['a to b'])
})
