import type { ListedExecution } from 'noetl-stream-client'

/**
 * The list after its first page was read again: what is new, what has changed, and the older rows as they were.
 *
 * `whole`: the first page is all there is.
 */
export function merged(old: ListedExecution[], first: ListedExecution[], whole: boolean): ListedExecution[] {
  const last = first.at(-1)
  if (whole || last === undefined) return first
  const place = old.findIndex((one) => one.execution_id === last.execution_id)
  return place < 0 ? first : [...first, ...old.slice(place + 1)]
}
