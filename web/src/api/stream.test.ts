import { NotFound, Unreachable } from 'noetl-stream-client'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { follow } from './stream'

const page = Object.assign(new EventTarget(), { hidden: false })

function hide(hidden: boolean): Promise<unknown> {
  page.hidden = hidden
  page.dispatchEvent(new Event('visibilitychange'))
  return vi.advanceTimersByTimeAsync(0)
}

/** A stream that gives one item, and then what comes of `then`. */
async function* stream(item: number, abort: AbortSignal, then: 'goes on' | 'ends' | Error): AsyncGenerator<number> {
  yield item
  if (then instanceof Error) throw then
  if (then === 'goes on') await new Promise((_, reject) => abort.addEventListener('abort', () => reject(abort.reason as Error)))
}

beforeEach(() => (vi.useFakeTimers(), void vi.stubGlobal('document', page)))
afterEach(() => (vi.useRealTimers(), void vi.unstubAllGlobals()))

test('a stream is held while the page is visible, until it is stopped', async () => {
  const [taken, aborts]: [number[], AbortSignal[]] = [[], []]
  const stop = follow((abort) => (aborts.push(abort), stream(aborts.length, abort, 'goes on')), (one) => taken.push(one))
  await hide(false)
  await hide(true)
  expect([taken, aborts.map((one) => one.aborted)]).toEqual([[1], [true]])
  await hide(false)
  expect([taken, aborts.map((one) => one.aborted)]).toEqual([[1, 2], [true, false]])
  stop()
  await hide(true)
  await hide(false)
  expect(aborts.map((one) => one.aborted)).toEqual([true, true])
})

test('a stream that no gateway gives is opened again after a rest, and one that is refused or ends is not', async () => {
  const [ends, opened]: [unknown[], number[]] = [[], []]
  const refused = new NotFound('gone')
  for (const [number, last] of [refused, 'ends' as const].entries()) {
    const outcomes = [last, new Unreachable('away')]
    const open = (abort: AbortSignal) => (opened.push(number), stream(1, abort, outcomes.pop() ?? 'goes on'))
    follow(open, () => undefined, (why) => ends.push(why))
    await vi.advanceTimersByTimeAsync(1_000)
    expect(opened.filter((one) => one === number)).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(opened.filter((one) => one === number)).toHaveLength(2)
  }
  expect(ends).toEqual([refused, null])
})
