import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Latest } from './paced'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

test('of what is wanted in quick succession, the first and the last are asked for', async () => {
  const asked: number[] = []
  const latest = new Latest<number>(async (wanted) => void asked.push(wanted), 100)
  for (let position = 1; position <= 50; position++) {
    latest.ask(position)
    await vi.advanceTimersByTimeAsync(1)
  }
  await vi.advanceTimersByTimeAsync(200)
  expect(asked).toEqual([1, 50])
})

test('a request that takes long is cancelled for what is wanted since', async () => {
  const cancelled: number[] = []
  const latest = new Latest<number>((wanted, signal) => {
    signal.addEventListener('abort', () => cancelled.push(wanted))
    return new Promise(() => undefined)
  }, 100)
  latest.ask(1)
  await vi.advanceTimersByTimeAsync(200)
  latest.ask(2)
  expect(cancelled).toEqual([])
  await vi.advanceTimersByTimeAsync(400)
  expect(cancelled).toEqual([1])
  latest.end()
  expect(cancelled).toEqual([1, 2])
})
