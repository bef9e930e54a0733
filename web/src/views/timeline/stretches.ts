/** A part of a range of time on screen, in ms and pixels. In an `idle` one time goes by faster. */
export interface Stretch {
  from: number
  to: number
  x: number
  width: number
  idle: boolean
}

/** How wide an idle stretch is, and how much of the range it must take to be one. */
export const IDLE_WIDTH = 76
const IDLE_SHARE = 0.04
const LEAST_IDLE_MS = 1000

/**
 * The parts of a range as they are drawn: what is busy in proportion to its time, long idle times compressed, but for a
 * moment at each of their ends, at which something happened.
 *
 * @param idle from when to when nothing went on, one after the other.
 */
export function stretchesOf(idle: readonly (readonly [number, number])[], since: number, until: number, width: number): Stretch[] {
  const length = until - since
  const moment = length / 100
  const parts: { from: number; to: number; idle: boolean }[] = []
  let at = since
  for (const [begin, end] of idle) {
    const from = begin < since ? since : begin + moment
    const to = end > until ? until : end - moment
    if (to - from < Math.max(LEAST_IDLE_MS, length * IDLE_SHARE)) continue
    if (from > at) parts.push({ from: at, to: from, idle: false })
    parts.push({ from, to, idle: true })
    at = to
  }
  if (at < until) parts.push({ from: at, to: until, idle: false })
  return placed(parts, since, until, width)
}

function placed(parts: { from: number; to: number; idle: boolean }[], since: number, until: number, width: number): Stretch[] {
  const idle = parts.filter((part) => part.idle)
  const busyMs = parts.reduce((sum, part) => sum + (part.idle ? 0 : part.to - part.from), 0)
  const idleWidth = Math.min(IDLE_WIDTH, width / 2 / Math.max(1, idle.length))
  if (busyMs === 0) return [{ from: since, to: until, x: 0, width, idle: false }]
  let x = 0
  return parts.map((part) => {
    const wide = part.idle ? idleWidth : ((part.to - part.from) / busyMs) * (width - idle.length * idleWidth)
    const made = { ...part, x, width: wide }
    x += wide
    return made
  })
}

/** Where a time is drawn; outside the range, as far as its nearest part goes on. */
export function xOf(stretches: readonly Stretch[], at: number): number {
  const part = stretches.find((one) => at < one.to) ?? stretches.at(-1)
  return part === undefined ? 0 : part.x + ((at - part.from) / (part.to - part.from)) * part.width
}

/** Which time is drawn there. */
export function timeAt(stretches: readonly Stretch[], x: number): number {
  const part = stretches.find((one) => x < one.x + one.width) ?? stretches.at(-1)
  return part === undefined ? 0 : part.from + ((x - part.x) / part.width) * (part.to - part.from)
}

/** A range within bounds, of at least `least` ms. */
export function within(since: number, until: number, first: number, last: number, least = 10): { since: number; until: number } {
  const length = Math.min(Math.max(until - since, least), Math.max(last - first, least))
  const from = Math.max(first, Math.min(since, last - length))
  return { since: Math.round(from), until: Math.round(from + length) }
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5, 108e5, 432e5, 864e5, 6048e5, 2592e6]

/** How many ms apart lines are drawn that stand for round times, at least `least` apart. */
export const roundStep = (least: number): number => STEPS.find((step) => step >= least) ?? Math.ceil(least / 2592e6) * 2592e6
