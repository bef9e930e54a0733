import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Pages } from './pages.svelte'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const COUNT = 100_000

/** A list, and from where on its pages were read. */
function read(): { pages: Pages<number>; asked: number[] } {
  const asked: number[] = []
  const pages = new Pages(async (first, limit) => {
    asked.push(first)
    return Array.from({ length: limit }, (_, n) => first + n)
  })
  return { pages, asked }
}

test('scrolled slowly, a list is read page by page', async () => {
  const { pages, asked } = read()
  for (let first = 0; first < 200; first += 20) {
    pages.show(first, first + 30, COUNT)
    await vi.advanceTimersByTimeAsync(1)
  }
  expect(asked).toEqual([0, 100, 200])
  expect(pages.at(150)).toBe(150)
})

test('of places that are passed over, none is read but the one where it rests', async () => {
  const { pages, asked } = read()
  for (let first = 0; first <= 50_000; first += 1_000) {
    pages.show(first, first + 30, COUNT)
    await vi.advanceTimersByTimeAsync(16)
  }
  await vi.advanceTimersByTimeAsync(200)
  expect(asked).toEqual([0, 50_000])
})

test('a page is read once, also when only it says how long the list is', async () => {
  const { pages, asked } = read()
  pages.show(0, 20, 1)
  await vi.advanceTimersByTimeAsync(1)
  pages.show(0, 20, COUNT)
  await vi.advanceTimersByTimeAsync(200)
  expect(asked).toEqual([0])
})

test('what has changed is read again where it is on screen', async () => {
  const { pages, asked } = read()
  pages.show(0, 20, COUNT)
  await vi.advanceTimersByTimeAsync(1)
  pages.again()
  await vi.advanceTimersByTimeAsync(1)
  expect(asked).toEqual([0, 0])
})

test('a list that grows while it is read is read to its end', async () => {
  let count = 50
  const pages = new Pages(async (first, limit) => {
    const items = Array.from({ length: Math.min(limit, count - first) }, (_, n) => first + n)
    await new Promise((resolve) => setTimeout(resolve, 10))
    return items
  })
  pages.show(40, 50, count)
  count = 60
  pages.show(40, 60, count)
  await vi.advanceTimersByTimeAsync(200)
  expect(pages.at(59)).toBe(59)
})
