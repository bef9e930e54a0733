import type { ExecutionHistogram } from 'noetl-stream-client'
import type { Colours } from '../../parts/canvas.svelte'
import { STATUSES } from '../../query'

/** From a time to another, ms since the epoch. */
export interface Range {
  since: number
  until: number
}

/** The range of a bar, as far as it is within that of the histogram. */
export function barRange(shown: ExecutionHistogram, bar: number): Range {
  const begin = Date.parse(shown.first) + bar * shown.bar_s * 1000
  return {
    since: Math.max(begin, Date.parse(shown.since)),
    until: Math.min(begin + shown.bar_s * 1000, Date.parse(shown.until)),
  }
}

export function barCount(shown: ExecutionHistogram): number {
  return Math.ceil((Date.parse(shown.until) - Date.parse(shown.first)) / (shown.bar_s * 1000))
}

/** The bar at a place of the width. */
export function barAt(shown: ExecutionHistogram, x: number, width: number): number {
  const count = barCount(shown)
  return Math.max(0, Math.min(count - 1, Math.floor((x / width) * count)))
}

/** Whole bars, from one to another in either order. */
export function chosenRange(shown: ExecutionHistogram, from: number, to: number): Range {
  return { since: barRange(shown, Math.min(from, to)).since, until: barRange(shown, Math.max(from, to)).until }
}

/** How many of each status are in a bar: those that there are. */
export function countsAt(shown: ExecutionHistogram, bar: number): [string, number][] {
  return STATUSES.map((status): [string, number] => [status, shown.bars[status]?.[bar] ?? 0]).filter(([, count]) => count > 0)
}

/** A time as a word of the line: to the minute, if it is one. */
export function timeWord(ms: number): string {
  const iso = new Date(ms).toISOString()
  return ms % 60_000 === 0 ? `${iso.slice(0, 16)}Z` : ms % 1000 === 0 ? `${iso.slice(0, 19)}Z` : iso
}

/** Failures stand at the bottom, where bars are compared best. */
const ORDER = ['failed', 'quarantined', 'cancelled', 'completed', 'compensating', 'paused', 'waiting', 'running', 'pending']

export function colourOf(status: string, colours: Colours): string {
  switch (status) {
    case 'completed':
      return colours.good
    case 'failed':
    case 'quarantined':
      return colours.bad
    case 'running':
      return colours.accent
    case 'waiting':
    case 'paused':
    case 'compensating':
      return colours.warn
    default:
      return colours.edge
  }
}

/** Rectangles of a canvas of this size, `[x, y, width, height]` by status; what is there can be seen, however little. */
export function boxes(shown: ExecutionHistogram, width: number, height: number): [string, number, number, number, number][] {
  const count = barCount(shown)
  const totals = Array.from({ length: count }, (_, bar) => countsAt(shown, bar).reduce((sum, [, one]) => sum + one, 0))
  const most = Math.max(1, ...totals)
  const found: [string, number, number, number, number][] = []
  for (let bar = 0; bar < count; bar++) {
    const [left, right] = [Math.round((bar * width) / count), Math.round(((bar + 1) * width) / count)]
    let bottom = height
    for (const status of ORDER) {
      const one = shown.bars[status]?.[bar] ?? 0
      if (one === 0) continue
      const tall = Math.max(1, (one / most) * (height - 2))
      bottom -= tall
      found.push([status, left, bottom, Math.max(1, right - left - 1), tall])
    }
  }
  return found
}
