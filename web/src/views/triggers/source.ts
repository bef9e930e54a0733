import type { TriggerEvent, TriggerState } from 'noetl-stream-client'
import { isExact } from '../../fields/values'

type Source = Pick<TriggerState, 'source' | 'on' | 'address'>

/** What becomes of events, all of it. */
export const STATUSES = ['waiting', 'started', 'ignored', 'repeated'] satisfies TriggerEvent['status'][]

/** What a trigger is on, in a few words: the address of a webhook, else the values that its events must have. */
export function concerns({ source, on, address }: Source): string {
  return address ?? Object.values(mapping(on[source])).map(words).filter(Boolean).join(' · ')
}

/** All that its document says of its source, as `key value`. Whoever sends to a webhook without a signature is believed. */
export function sourceFacts({ source, on }: Pick<Source, 'source' | 'on'>): string[] {
  return Object.entries(mapping(on[source])).map(([key, value]) => `${key === 'form' ? 'verify' : key.replaceAll('_', ' ')} ${words(value)}`)
}

export const isOpenToAll = ({ on }: Pick<Source, 'on'>): boolean => mapping(on.webhook).form === 'none'

/** An event with its body as JSON, if it is JSON that a browser can hold. */
export function asTemplatesSee(event: Record<string, unknown>): Record<string, unknown> {
  if (typeof event.body !== 'string') return event
  try {
    const json: unknown = JSON.parse(event.body)
    return isExact(json) ? { ...event, json } : event
  } catch {
    return event
  }
}

const mapping = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {})

function words(value: unknown): string {
  if (Array.isArray(value)) return value.map(words).join(', ')
  if (typeof value === 'object' && value !== null) return Object.entries(value).map(([key, one]) => `${key}=${words(one)}`).join(', ')
  return String(value)
}
