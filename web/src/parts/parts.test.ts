import { expect, test } from 'vitest'
import { entered, typed } from '../views/execution/entered'
import { merged } from '../views/executions/merge'
import { line, place } from '../views/graph/place'
import { arcStatesOf, statesOf } from '../views/graph/passed'
import type { ArcActivity, ListedExecution, Reason, StepRun } from '../api/types'
import { expression } from './json'
import { visible } from './windowed'

test('a window shows the rows on screen and some beside them, however many there are', () => {
  expect(visible(0, 320, 32, 100_000)).toEqual({ first: 0, last: 18 })
  expect(visible(32_000, 320, 32, 100_000)).toEqual({ first: 992, last: 1018 })
  expect(visible(1_000_000, 320, 32, 5)).toEqual({ first: 0, last: 5 })
})

test('a path in a result is copied as the expression that reads it', () => {
  expect(expression('fetch', ['data', 'items', 3, 'the "key"'])).toBe('{{ fetch.data.items[3]["the \\"key\\""] }}')
})

test('what is typed is JSON if it can be, and comes back as it was', () => {
  for (const value of [1, true, null, 'approved', '1', { a: [1] }]) expect(entered(typed(value))).toEqual(value)
})

test('a first page read again brings what is new and keeps the older rows', () => {
  const rows = (...ids: string[]): ListedExecution[] => ids.map((id) => ({ execution_id: id }) as ListedExecution)
  const ids = (all: ListedExecution[]): string[] => all.map((one) => one.execution_id)
  expect(ids(merged(rows('d', 'c', 'b', 'a'), rows('e', 'd', 'c'), false))).toEqual(['e', 'd', 'c', 'b', 'a'])
  expect(ids(merged(rows('b', 'a'), rows('f', 'e'), false))).toEqual(['f', 'e'])
  expect(ids(merged(rows('b', 'a'), rows('b'), true))).toEqual(['b'])
})

test('a step that waits says why, and an arc by what it decided', () => {
  const run = (step: string, status: string, from: string | null): StepRun =>
    ({ step, status, loop: null, token: { from_step: from } }) as StepRun
  const runs = [run('a', 'done', null), run('b', 'done', 'a'), run('b', 'failed', 'a')]
  const states = statesOf(runs, [{ step: 'c', sentence: 'held' } as Reason])
  expect(states.get('b')).toMatchObject({ status: 'failed', runs: 2 })
  expect(states.get('c')).toEqual({ status: 'waiting', runs: 0, loop: '', reason: 'held' })
  const guard = { when: '', holds: true, values: { 'ctx.n': 1 }, missing: ['ctx.m'], to: 'b' }
  const last = { position: 3, step_run_id: 'run', fired: true, held: true, guard }
  const arcs = arcStatesOf([{ from: 'a', to: 'b', index: 0, fired: 2, skipped: 1, last } as ArcActivity])
  expect(arcs.get('a 0')).toEqual({ fired: 2, words: 'taken 2 times, not taken once; last: ctx.n is 1, ctx.m is missing' })
})

test('a graph is laid out from left to right, with two arcs between the same steps', () => {
  const arc = (from: string, to: string): { from: string; to: string; when: null; index: number } => ({ from, to, when: null, index: 0 })
  const layout = place({ steps: ['a', 'b', 'c'], arcs: [arc('a', 'b'), arc('a', 'b'), arc('b', 'c'), arc('c', 'a')] })
  const [a, b, c] = layout.steps
  expect(a && b && c && a.x < b.x && b.x < c.x).toBe(true)
  expect(new Set(layout.arcs.map((one) => one.path)).size).toBe(4)
  expect(line([{ x: 0, y: 0 }, { x: 2, y: 2 }])).toBe('M0,0L2,2')
})
