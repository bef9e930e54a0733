import { expect, test } from 'vitest'
import type { Timeline } from 'noetl-stream-client'
import { idleOf, placeOfWords, stacked } from './bars'

test('what went on at once is stacked, and columns that are alike are one bar', () => {
  const { most, bars } = stacked([
    { status: 'done', columns: [[0, 10, 2]] },
    { status: 'failed', columns: [[5, 10, 3]] },
  ])
  expect(most).toBe(5)
  expect(bars).toEqual([
    { status: 'done', first: 0, wide: 10, low: 0, count: 2 },
    { status: 'failed', first: 5, wide: 5, low: 2, count: 3 },
    { status: 'failed', first: 10, wide: 5, low: 0, count: 3 },
  ])
  expect(stacked([])).toEqual({ most: 0, bars: [] })
})

test('a duration stands behind its bar, else inside, else before it, else nowhere', () => {
  expect(placeOfWords(40, 200, 100, 200, 1000, true)).toEqual({ x: 304, inside: false })
  expect(placeOfWords(40, 200, 100, 200, 310, true)).toEqual({ x: 204, inside: true })
  expect(placeOfWords(40, -500, 800, 200, 310, true)).toEqual({ x: 204, inside: true })
  expect(placeOfWords(40, 200, 100, 200, 310, false)).toBeNull()
  expect(placeOfWords(40, 200, 20, 200, 230, true)).toBeNull()
  expect(placeOfWords(40, 980, 10, 200, 1000, true)).toEqual({ x: 936, inside: false })
  expect(placeOfWords(40, 999, 10, 200, 1000, true)).toEqual({ x: 955, inside: false })
  expect(placeOfWords(40, 980, 10, 940, 1000, true)).toBeNull()
  expect(placeOfWords(40, 20, 50, 200, 1000, true)).toBeNull()
})

test('an idle time without an end goes on', () => {
  const answer = { since: '2026-11-22T00:00:00Z', idle: [{ offset_ms: 0, ms: 5 }, { offset_ms: 10, ms: null }] }
  const base = Date.parse(answer.since)
  expect(idleOf(answer as Timeline)).toEqual([
    [base, base + 5],
    [base + 10, Infinity],
  ])
})
