import type { Activity, Timeline } from 'noetl-stream-client'

/** From when to when nothing went on, in ms since the epoch. */
export function idleOf({ since, idle }: Timeline): [number, number][] {
  const base = Date.parse(since)
  return idle.map(({ offset_ms, ms }) => [base + offset_ms, ms === null ? Infinity : base + offset_ms + ms])
}

/** Where the words about a bar have room: behind it, inside if it is high enough, or before it; null: nowhere. `left`: what stands before it ends there. */
export function placeOfWords(long: number, x: number, wide: number, left: number, next: number, high: boolean): { x: number; inside: boolean } | null {
  const gap = 4
  const [from, end] = [Math.max(x, left), x + wide]
  if (end >= left && end + long + 2 * gap <= next) return { x: end + gap, inside: false }
  if (high && Math.min(end, next) - from >= long + 2 * gap) return { x: from + gap, inside: true }
  return x <= next && x - long - 2 * gap >= left ? { x: x - long - gap, inside: false } : null
}

interface Bar {
  status: string
  first: number
  wide: number
  low: number
  count: number
}

/** How many were going on in each column, one status on top of the other, and how many at most. */
export function stacked(counts: readonly Activity[]): { most: number; bars: Bar[] } {
  const heights: number[] = []
  const bars: Bar[] = []
  for (const { status, columns } of counts) {
    for (const [first = 0, wide = 1, count = 0] of columns) {
      let bar: Bar | undefined
      for (let column = first; column < first + wide; column++) {
        const low = heights[column] ?? 0
        heights[column] = low + count
        if (bar?.low === low) bar.wide++
        else bars.push((bar = { status, first: column, wide: 1, low, count }))
      }
    }
  }
  return { most: heights.reduce((most, one) => Math.max(most, one), 0), bars }
}
