import { expect, test } from 'vitest'
import { between, clock, duration, instant } from './times'

test.each([
  [0.004, '4 ms'],
  [0.42, '0.42 s'],
  [12.34, '12.3 s'],
  [7, '7 s'],
  [185, '3 min 5 s'],
  [7860, '2 h 11 min'],
  [356400, '4 d 3 h'],
])('%d seconds are %s', (seconds, shown) => {
  expect(duration(seconds)).toBe(shown)
})

test('a time shows as much of its date as is needed', () => {
  const now = Date.UTC(2026, 10, 23, 12)
  expect(clock('2026-11-23T01:02:03.456+00:00', true, now)).toBe('01:02:03')
  expect(clock('2026-11-22T01:02:03.456+00:00', true, now)).toBe('Nov 22 01:02:03')
  expect(clock('2025-11-22T01:02:03.456+00:00', true, now)).toBe('2025-11-22 01:02')
  expect(clock('2026-11-23T01:02:03.456+00:00', true, now, true)).toBe('01:02:03.456')
  expect(clock('2025-11-22T01:02:03.456+00:00', true, now, true)).toBe('2025-11-22 01:02:03.456')
  expect(instant('2026-11-22T01:02:03.456+00:00', true)).toBe('2026-11-22 01:02:03.456 UTC')
})

test('what has not ended lasts until now', () => {
  expect(between('2026-11-23T00:00:00.000+00:00', null, Date.UTC(2026, 10, 23, 0, 1))).toBe(60)
})
