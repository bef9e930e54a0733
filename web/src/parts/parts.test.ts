import { expect, test } from 'vitest'
import { merged } from '../views/executions/merge'
import { line, placeInLines } from '../views/graph/place'
import { arcStatesOf, countsOf, failures, partsOf, progress, statesAt, statesNow } from '../views/graph/passed'
import type { ArcActivity, ExecutionState, ListedExecution, Reason, RunCounts, StepActivity } from 'noetl-stream-client'
import { placeOf, sizeOf } from '../views/execution/place'
import { waitsFor } from '../views/execution/waits'
import { wrapped } from '../views/execution/wrapped'
import { absent, columnsOf, expression, holdsNumbers, kindOf } from './json'
import { visible } from './windowed'

test('a window shows the rows on screen and some beside them, however many there are', () => {
  expect(visible(0, 320, 32, 100_000)).toEqual({ first: 0, last: 18 })
  expect(visible(32_000, 320, 32, 100_000)).toEqual({ first: 992, last: 1018 })
  expect(visible(1_000_000, 320, 32, 5)).toEqual({ first: 0, last: 5 })
})

test('a path in a result is copied as the expression that reads it', () => {
  expect(expression('fetch', ['data', 'items', 3, 'the "key"'])).toBe('{{ fetch.data.items[3]["the \\"key\\""] }}')
})

test('a column holds numbers if all that it has are, and then they stand under each other', () => {
  const rows = [{ total: 12.5, id: 'a', none: null }, { total: null, id: 2 }, { total: 8 }]
  expect(['total', 'id', 'none'].map((column) => holdsNumbers(rows, column))).toEqual([true, false, false])
})

test('a list of rows is a table, and a picture in a text is one', () => {
  expect(columnsOf([{ a: 1 }, { b: 2, a: 3 }])).toEqual(['a', 'b'])
  expect(columnsOf([{ a: 1 }, 2])).toEqual([])
  expect(['rows', 'list', 'list']).toEqual([[{ a: 1 }], [[1]], []].map(kindOf))
  expect(kindOf('data:image/png;base64,iVBORw0KGgo=')).toBe('image')
  expect(kindOf('data:image/svg+xml;base64,PHN2Zz4=')).toBe('text')
  expect(absent({ $reference: { store: 'nats', size: 5_000_000 } })).toEqual({ size: 5_000_000, place: 'store' })
  expect(absent({ $large: { size: 9000 } })).toEqual({ size: 9000, place: 'event' })
  expect(absent({ $reference: { store: 'journal', size: 10 } })?.place).toBe('iterations')
  expect([812, 14_200, 1_230_000].map(sizeOf)).toEqual(['812 bytes', '14 KB', '1.2 MB'])
})

test('long lines wrap into rows of equal height', () => {
  const lines = [{ text: '' }, { text: 'abcdefgh' }, { text: 'abc' }]
  expect(wrapped(lines, 3).map(({ line, from }) => lines[line]?.text.slice(from, from + 3))).toEqual(['', 'abc', 'def', 'gh', 'abc'])
  expect(wrapped(lines, 0).length).toBe(3)
})

test('what a token waits for is said in a line', () => {
  const guard = { when: 'ctx.go', holds: null, values: { 'ctx.n': 1 }, missing: ['ctx.go'], to: null }
  expect(waitsFor({ waiting_on: { guards: [guard] } })).toBe('ctx.go: ctx.n is 1, ctx.go is missing')
  expect(waitsFor({ waiting_on: { join: { tokens: 2, arrived: ['a'], coming: [] } } })).toBe('1 of 2 arrived')
  expect(waitsFor({ waiting_on: null })).toBe('')
  expect(placeOf({ step: 'fetch', iteration: [2, 0], task: 'call' })).toBe('fetch[2][0].call')
})

test('a first page read again brings what is new and keeps the older rows', () => {
  const rows = (...ids: string[]): ListedExecution[] => ids.map((id) => ({ execution_id: id }) as ListedExecution)
  const ids = (all: ListedExecution[]): string[] => all.map((one) => one.execution_id)
  expect(ids(merged(rows('d', 'c', 'b', 'a'), rows('e', 'd', 'c'), false))).toEqual(['e', 'd', 'c', 'b', 'a'])
  expect(ids(merged(rows('b', 'a'), rows('f', 'e'), false))).toEqual(['f', 'e'])
  expect(ids(merged(rows('b', 'a'), rows('b'), true))).toEqual(['b'])
})

test('a step that waits says why, and an arc by what it decided', () => {
  const step = (name: string, status: NonNullable<StepActivity['status']> | null, runs: RunCounts, places = {}): StepActivity => ({
    step: name,
    status,
    runs,
    iterations: null,
    places,
  })
  const steps = [
    step('a', 'done', { done: 1 }),
    step('b', 'failed', { done: 1, failed: 1 }),
    step('c', 'waiting', {}, { held: 1 }),
    step('j', 'waiting', { done: 1 }, { join: 2 }),
    step('d', null, {}),
  ]
  const states = statesNow(steps, [{ step: 'c', sentence: '`c` is held' } as Reason])
  expect(states.get('b')).toMatchObject({ status: 'failed', runs: 2 })
  expect(states.get('c')).toMatchObject({ status: 'waiting', runs: 0, waits: ['c is held'] })
  expect(states.get('j')).toMatchObject({ status: 'waiting', places: { join: 2 } })
  expect(states.has('d')).toBe(false)
  const guard = { when: '', holds: true, values: { 'ctx.n': 1 }, missing: ['ctx.m'], to: 'b' }
  const last = { position: 3, step_run_id: 'run', fired: true, held: true, guard }
  const arcs = arcStatesOf([{ from: 'a', to: 'b', index: 0, fired: 2, skipped: 1, last } as ArcActivity])
  expect(arcs.get('a 0')).toEqual({ fired: 2, words: 'taken 2 times, not taken once; last: ctx.n is 1, ctx.m is missing' })
})

test('a state of the past shows tokens and loops, also where step runs are not counted', () => {
  const loop = { count: 10, ok: 3, failed: 1, skipped: 0, failed_leaves: 1 }
  const token = { step: 'each', step_run_id: 'r', loop, place: 'queued', count: 2, waiting_on: null }
  const tokens = [token, { ...token, waiting_on: { pool: { pool: 'gpu' } } }]
  const places = [{ step: 'each', places: { running: 2, queued: 1 } }]
  const statuses = [
    { step: 'a', status: 'done' },
    { step: 'each', status: 'running' },
  ]
  const states = statesAt({ tokens, places, steps: null, statuses, results: [{ step: 'a', error: null }] } as unknown as ExecutionState)
  expect(states.get('a')).toMatchObject({ status: 'done', places: {} })
  expect(states.get('each')).toMatchObject({ status: 'running', iterations: { done: 3, failed: 1, waiting: 6 } })
  expect(states.get('each')?.waits).toEqual(['2 queued: a worker of pool gpu'])
  expect(progress(states.get('each')?.iterations ?? {})).toBe('4/10')
  expect(failures(states.get('each')?.iterations ?? {})).toBe('1 failed')
  expect(progress(countsOf({ count: 2000, ok: 1996, failed: 4, skipped: 0, failed_leaves: 4 }))).toBe('2,000/2,000')
  expect(failures({ done: 3 })).toBe('')
  expect(partsOf({ done: 3, failed: 1, waiting: 6 })).toEqual([
    { status: 'done', from: 0, to: 0.3 },
    { status: 'failed', from: 0.3, to: 0.4 },
  ])
})

test('a step whose playbook is open is large enough for it', () => {
  const arc = { from: 'x', to: 'y', when: null, index: 0 }
  const layout = placeInLines({ steps: ['a', 'b'], arcs: [{ ...arc, from: 'a', to: 'b' }], inner: { b: { steps: ['x', 'y'], arcs: [arc] } } })
  const [a, b] = layout.steps
  expect(b?.inner && b.inner.width < b.width && b.inner.height < b.height).toBe(true)
  expect(a && b && a.x + a.width < b.x).toBe(true)
})

test('a graph is laid out from left to right, with two arcs between the same steps', () => {
  const arc = (from: string, to: string): { from: string; to: string; when: null; index: number } => ({ from, to, when: null, index: 0 })
  const layout = placeInLines({ steps: ['a', 'b', 'c'], arcs: [arc('a', 'b'), arc('a', 'b'), arc('b', 'c'), arc('c', 'a')] })
  const [a, b, c] = layout.steps
  expect(a && b && c && a.x < b.x && b.x < c.x).toBe(true)
  expect(new Set(layout.arcs.map((one) => one.path)).size).toBe(4)
  expect(line([{ x: 0, y: 0 }, { x: 2, y: 2 }])).toBe('M0,0L2,2')
})
