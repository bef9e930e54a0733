import { expect, test } from 'vitest'
import { barAt, barCount, boxes, chosenRange, countsAt, timeWord } from './histogram'

const HOUR = 3_600_000
const NINE = Date.UTC(2026, 0, 1, 9)
const SHOWN = {
  since: '2026-01-01T09:30:00.000+00:00',
  until: '2026-01-01T12:10:00.000+00:00',
  first: '2026-01-01T09:00:00.000+00:00',
  bar_s: 3600,
  bars: { completed: [90, 0, 9, 0], failed: [0, 0, 1, 0] },
  counts: { completed: 99, failed: 1 },
  complete: true,
}

test('bars are places of the width, and ranges of time within that of the histogram', () => {
  expect(barCount(SHOWN)).toBe(4)
  expect([barAt(SHOWN, -5, 400), barAt(SHOWN, 150, 400), barAt(SHOWN, 4000, 400)]).toEqual([0, 1, 3])
  expect(chosenRange(SHOWN, 2, 1)).toEqual({ since: NINE + HOUR, until: NINE + 3 * HOUR })
  expect(chosenRange(SHOWN, 0, 3)).toEqual({ since: NINE + HOUR / 2, until: NINE + 3 * HOUR + HOUR / 6 })
})

test('a bar says how many of each status', () => {
  expect(countsAt(SHOWN, 2)).toEqual([['completed', 9], ['failed', 1]])
  expect(countsAt(SHOWN, 1)).toEqual([])
})

test('failures are below, and one of many can be seen', () => {
  const drawn = boxes(SHOWN, 400, 52)
  expect(drawn.map(([status, x]) => [status, x])).toEqual([['completed', 0], ['failed', 200], ['completed', 200]])
  const [, , y, , tall] = drawn[1] ?? []
  expect([y, tall]).toEqual([51, 1])
})

test('a time is as short as it can be', () => {
  expect([timeWord(NINE), timeWord(NINE + 1000), timeWord(NINE + 1)]).toEqual([
    '2026-01-01T09:00Z',
    '2026-01-01T09:00:01Z',
    '2026-01-01T09:00:00.001Z',
  ])
})
