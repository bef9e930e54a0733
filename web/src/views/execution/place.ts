import type { EventRow } from '../../api/executions'

/** Where in the playbook an event is: `fetch[3].call`. */
export function placeOf(event: Pick<EventRow, 'step' | 'iteration' | 'task'>): string {
  const place = (event.step ?? '') + (event.iteration ?? []).map((index) => `[${index}]`).join('')
  return event.task ? `${place}.${event.task}` : place
}

/** A size for people: `812 bytes`, `14 KB`, `1.2 MB`, `3.4 GB`. */
export function sizeOf(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`
  if (bytes < 1_000_000) return `${Math.round(bytes / 1000)} KB`
  if (bytes < 1_000_000_000) return `${(bytes / 1_000_000).toFixed(1)} MB`
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`
}
