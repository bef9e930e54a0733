import { expect, test } from 'vitest'
import { allowed, found, fullness } from './limits'

test('a limit says what it allows', () => {
  expect(allowed({ concurrency: 5, rate: null })).toBe('5 at once')
  expect(allowed({ concurrency: null, rate: { per_s: 0.5, burst: 1 } })).toBe('0.5 a second')
  expect(allowed({ concurrency: 1, rate: { per_s: 10, burst: 5 } })).toBe('1 at once, 10 a second (burst 5)')
})

test('keys are found by words of their name and namespace', () => {
  const keys = [{ key: 'import-acme', namespace: 'shop' }, { key: 'api', namespace: '' }]
  expect(found(keys, 'SHOP acme')).toEqual([keys[0]])
  expect(found(keys, '')).toEqual(keys)
})

test('a key is as full as what it allows is held; by rate alone it is not', () => {
  expect(fullness({ held: 1, concurrency: 4 })).toBe(0.25)
  expect(fullness({ held: 5, concurrency: 4 })).toBe(1)
  expect(fullness({ held: 5, concurrency: null })).toBeNull()
})
