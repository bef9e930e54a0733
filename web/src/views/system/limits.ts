import type { Limit } from 'noetl-stream-client'

/** What a key allows, in a few words: `5 at once, 10 a second (burst 5)`. */
export function allowed({ concurrency, rate }: Pick<Limit, 'concurrency' | 'rate'>): string {
  const said = [
    ...(concurrency === null ? [] : [`${concurrency} at once`]),
    ...(rate === null ? [] : [`${rate.per_s} a second${rate.burst > 1 ? ` (burst ${rate.burst})` : ''}`]),
  ]
  return said.join(', ')
}

/** The keys that have all words of the text in their name or namespace. */
export function found<One extends Pick<Limit, 'key' | 'namespace'>>(limits: readonly One[], text: string): One[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  return limits.filter(({ key, namespace }) => words.every((word) => `${namespace} ${key}`.toLowerCase().includes(word)))
}

/** How full a key is, from 0 to 1; null if only its rate is limited. */
export const fullness = ({ held, concurrency }: Pick<Limit, 'held' | 'concurrency'>): number | null =>
  concurrency === null ? null : Math.min(1, held / Math.max(1, concurrency))
