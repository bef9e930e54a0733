import { expect, test } from 'vitest'
import { areMarks, countAt, firstScale, fitting, meets, soughtIn } from './map'
import type { StepState } from './passed'

const state = (status: string): StepState => ({ status, runs: 1, places: {}, iterations: null, waits: [] })

test('a count stands at the right end of its step, or begins at the left end if it is longer than the step', () => {
  expect(countAt('×12', 100, 0, false)).toEqual({ x: 96, y: -3, anchor: 'end' })
  expect(countAt('100k/100k', 51, 0, false)).toEqual({ x: 0, y: -3, anchor: 'start' })
  expect(countAt('1/120', 100, 2, true)).toEqual({ x: 68, y: -8, anchor: 'start' })
})

test('a part is drawn if any of it is in the area, wherever its graph is drawn', () => {
  const area = { x: 100, y: 100, width: 50, height: 50 }
  const part = { x: 0, y: 0, width: 20, height: 20 }
  expect(meets(part, area, 0, 0)).toBe(false)
  expect(meets(part, area, 85, 140)).toBe(true)
  expect(meets({ x: 0, y: 110, width: 9000, height: 0 }, area, 0, 0)).toBe(true)
})

test('a graph that is nearly as large as its view is shown whole, a larger one as it is', () => {
  expect(fitting({ width: 2000, height: 100 }, { width: 1000, height: 100 })).toBe(0.5)
  expect(fitting({ width: 20, height: 10 }, { width: 1000, height: 100 })).toBe(1)
  expect(fitting({ width: 20, height: 10 }, { width: 3800, height: 400 })).toBe(1.5)
  expect([firstScale(0.7), firstScale(0.5)]).toEqual([0.7, 1])
})

test('as many as are legible have names, of small ones fewer', () => {
  expect([areMarks(300, 1), areMarks(500, 1), areMarks(60, 0.2), areMarks(100, 0.2)]).toEqual([false, true, false, true])
})

test('what has failed is looked for before what runs', () => {
  const states = new Map([
    ['a', state('done')],
    ['b', state('running')],
    ['c', state('failed')],
  ])
  expect(soughtIn(['a', 'b', 'c'], states)).toBe('c')
  expect(soughtIn(['a', 'b'], states)).toBe('b')
  expect(soughtIn(['a'], states)).toBeUndefined()
})
