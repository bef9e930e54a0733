import { expect, test } from 'vitest'
import { IDLE_WIDTH, roundStep, stretchesOf, timeAt, within, xOf } from './stretches'

test('a long time in which nothing goes on is compressed and what is around it has the rest', () => {
  const found = stretchesOf([[0, 1000], [3_601_000, 3_602_000]], 0, 3_602_000, 576)
  expect(found.map((part) => [part.from, part.to, part.idle])).toEqual([
    [0, 1000, false],
    [1000, 3_601_000, true],
    [3_601_000, 3_602_000, false],
  ])
  expect(found.map((part) => part.width)).toEqual([250, IDLE_WIDTH, 250])
})

test('short breaks, and what begins before the range or ends after it, are one part', () => {
  const found = stretchesOf([[-500, 40_000], [40_500, 90_000], [50_000, 200_000]], 0, 100_000, 100)
  expect(found).toEqual([{ from: 0, to: 100_000, x: 0, width: 100, idle: false }])
})

test('an idle beginning and end are compressed, and a range in which nothing goes on is drawn as it is', () => {
  expect(stretchesOf([[50_000, 51_000]], 0, 100_000, 100).map((part) => part.idle)).toEqual([true, false, true])
  expect(stretchesOf([], 0, 100_000, 100)).toEqual([{ from: 0, to: 100_000, x: 0, width: 100, idle: false }])
})

test('every time has a place, and the place has that time', () => {
  const found = stretchesOf([[0, 1000], [500_000, 501_000], [900_000, 1_000_000]], 0, 1_000_000, 800)
  const total = found.reduce((sum, part) => sum + part.width, 0)
  expect(total).toBeCloseTo(800)
  let last = -1
  for (const at of [0, 10, 999, 1000, 250_000, 500_500, 899_999, 950_000, 1_000_000]) {
    const x = xOf(found, at)
    expect(x).toBeGreaterThan(last)
    expect(timeAt(found, x)).toBeCloseTo(at, 3)
    last = x
  }
})

test('a range stays within its bounds and does not vanish', () => {
  expect(within(-50, 50, 0, 1000)).toEqual({ since: 0, until: 100 })
  expect(within(980, 1080, 0, 1000)).toEqual({ since: 900, until: 1000 })
  expect(within(-50, 5000, 0, 1000)).toEqual({ since: 0, until: 1000 })
  expect(within(500, 501, 0, 1000)).toEqual({ since: 500, until: 510 })
})

test('lines stand for round times', () => {
  expect([roundStep(3), roundStep(60_001), roundStep(864e5)]).toEqual([5, 300_000, 864e5])
})
