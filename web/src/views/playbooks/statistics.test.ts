import { expect, test } from 'vitest'
import { barsOf, HEIGHT, percent, sinceOf, spreadOf, WIDTH } from './statistics'

test('a span ends now', () => {
  expect(sinceOf('24h', Date.parse('2026-01-02T00:00:00Z'))).toBe('2026-01-01T00:00:00.000Z')
  expect(sinceOf('30d', Date.parse('2026-01-31T00:00:00Z'))).toBe('2026-01-01T00:00:00.000Z')
})

test('a small rate is not shown as none', () => {
  expect([0, 0.004, 0.25, 1].map(percent)).toEqual(['0.0 %', '0.40 %', '25.0 %', '100.0 %'])
})

test('a spread is from p50 to p99, and that of one run is seen at its place', () => {
  expect(spreadOf({ p50: 1, p99: 3 }, 4)).toEqual({ from: 25, wide: 50 })
  expect([spreadOf({ p50: 4, p99: 4 }, 4), spreadOf({ p50: 0, p99: 0 }, 0)]).toEqual([{ from: 99, wide: 1 }, { from: 0, wide: 1 }])
})

test('bars stand on each other, the highest as high as there is room', () => {
  const bars = barsOf([
    { start: '2026-01-01T00:00:00.000Z', statuses: { completed: 2, failed: 1, running: 1 }, duration: null },
    { start: '2026-01-01T01:00:00.000Z', statuses: {}, duration: null },
    { start: '2026-01-01T02:00:00.000Z', statuses: { failed: 2 }, duration: null },
  ])
  expect(bars.map(({ kind, y, height }) => [kind, y, height])).toEqual([
    ['failed', HEIGHT * 0.75, HEIGHT / 4],
    ['completed', HEIGHT / 4, HEIGHT / 2],
    ['others', 0, HEIGHT / 4],
    ['failed', HEIGHT / 2, HEIGHT / 2],
  ])
  expect(bars.every(({ x, width }) => x >= 0 && x + width <= WIDTH)).toBe(true)
  expect(bars[0]?.words).toBe('2026-01-01 00:00 UTC: 2 completed, 1 failed, 1 running')
})
