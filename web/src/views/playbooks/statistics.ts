import type { Durations, StatisticsBucket } from 'noetl-stream-client'

export const SPANS = ['24h', '7d', '30d', '90d'] as const
export type Span = (typeof SPANS)[number]

const HOUR_MS = 3_600_000

/** When a span began. */
export function sinceOf(span: Span, nowMs: number): string {
  const hours = Number(span.slice(0, -1)) * (span.endsWith('d') ? 24 : 1)
  return new Date(nowMs - hours * HOUR_MS).toISOString()
}

export const percent = (rate: number): string => `${(100 * rate).toFixed(rate > 0 && rate < 0.01 ? 2 : 1)} %`

export interface Bar {
  kind: 'completed' | 'failed' | 'others'
  x: number
  y: number
  width: number
  height: number
  words: string
}

export const WIDTH = 480
export const HEIGHT = 80
export const KINDS = ['failed', 'completed', 'others'] as const

/** From p50 to p99, in hundredths of the longest; what has no spread is seen, too. */
export function spreadOf({ p50, p99 }: Pick<Durations, 'p50' | 'p99'>, longest: number): { from: number; wide: number } {
  const [from, wide] = [p50, p99 - p50].map((seconds) => (100 * seconds) / (longest || 1)) as [number, number]
  return { from: Math.min(from, 99), wide: Math.max(1, wide) }
}

/** A stack of bars for each bucket, failed ones at the bottom, as high as the largest bucket allows. */
export function barsOf(buckets: readonly StatisticsBucket[]): Bar[] {
  const sums = buckets.map(({ statuses }) => countsOf(statuses))
  const most = Math.max(1, ...sums.map((counts) => counts.failed + counts.completed + counts.others))
  const width = WIDTH / Math.max(1, buckets.length)
  return sums.flatMap((counts, index) => {
    let y = HEIGHT
    const { start = '', statuses = {} } = buckets[index] ?? {}
    const words = `${start.slice(0, 16).replace('T', ' ')} UTC: ${Object.entries(statuses).map(([status, count]) => `${count} ${status}`).join(', ')}`
    return KINDS.filter((kind) => counts[kind] > 0).map((kind) => {
      const height = (HEIGHT * counts[kind]) / most
      y -= height
      return { kind, x: index * width + 0.5, y, width: width - 1, height, words }
    })
  })
}

function countsOf({ completed = 0, failed = 0, ...rest }: Record<string, number>): Record<Bar['kind'], number> {
  return { completed, failed, others: Object.values(rest).reduce((sum, one) => sum + one, 0) }
}
