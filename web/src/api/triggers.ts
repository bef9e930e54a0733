import { get, segment, type Query } from './client'
import type { Page } from './listed.svelte'
import type { TriggerEvent, TriggerState } from './types'

const one = (path: string): string => `/triggers/${segment(path)}`

/** By path. */
export const triggers = (prefix: string, limit: number): Promise<Page<TriggerState>> => get('/triggers', { prefix, limit })
/** Newest first, without what they say. */
export const events = (path: string, query: Query): Promise<Page<TriggerEvent>> => get(`${one(path)}/events`, query)
/** One, in full. */
export const event = (path: string, number: number): Promise<TriggerEvent> => get(`${one(path)}/events/${number}`)
