import { expect, test } from 'vitest'
import { IDLE_WIDTH, roundStep, stretchesOf, timeAt, within, xOf } from './stretches'

test('a long idle time is compressed but for its ends and what is around it has the rest', () => {
  const found = stretchesOf([[36_000, 3_600_000]], 0, 3_600_000, 576)
  expect(found.map((part) => [part.from, part.to, part.idle])).toEqual([
    [0, 72_000, false],
    [72_000, 3_564_000, true],
    [3_564_000, 3_600_000, false],
  ])
  expect(found[1]?.width).toBe(IDLE_WIDTH)
})

test('short idle times are drawn as they are, and so is a range that is one idle time', () => {
  const one = [{ from: 0, to: 100_000, x: 0, width: 100, idle: false }]
  expect(stretchesOf([[1000, 4000]], 0, 100_000, 100)).toEqual(one)
  expect(stretchesOf([[-5000, Infinity]], 0, 100_000, 100)).toEqual(one)
})

test('an idle time that goes on is compressed up to the end of the range', () => {
  expect(stretchesOf([[50_000, Infinity]], 0, 100_000, 100).map((part) => [part.from, part.to, part.idle])).toEqual([
    [0, 51_000, false],
    [51_000, 100_000, true],
  ])
})

test('whatever range is shown, all of it has a place, and what is compressed is idle', () => {
  let seed = 36
  const random = (most: number): number => (seed = (seed * 48_271) % 2_147_483_647) % most
  for (let round = 0; round < 500; round++) {
    const idle: [number, number][] = []
    let end = 0
    while (idle.length < 6) {
      const from = end + 1 + random(60_000)
      end = from + 1000 + random(300_000)
      idle.push([from, end])
    }
    const since = random(end)
    const until = since + 10 + random(end)
    const found = stretchesOf(idle, since, until, 800)
    expect([found[0]?.from, found.at(-1)?.to]).toEqual([since, until])
    expect(found.reduce((sum, part) => sum + part.width, 0)).toBeCloseTo(800)
    found.forEach((part, index) => {
      if (index > 0) expect(part.from).toBe(found[index - 1]?.to)
      if (part.idle) expect(idle.some(([from, to]) => from <= part.from && part.to <= to)).toBe(true)
    })
    for (const share of [0, 0.1, 0.5, 0.9, 0.999]) {
      const at = since + share * (until - since)
      expect(timeAt(found, xOf(found, at))).toBeCloseTo(at, 3)
    }
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
