import { get, segment } from './client'
import type { Page } from './listed.svelte'
import type { TriggerEvent, TriggerState } from './types'

const SHOWN = 1000
const one = (path: string): string => `/triggers/${segment(path)}`

/** By path; the first thousand. */
export const triggers = async (): Promise<TriggerState[]> => (await get<Page<TriggerState>>('/triggers', { limit: SHOWN })).items
/** Newest first, without what they say. */
export const events = (path: string, cursor: string | null, limit: number): Promise<Page<TriggerEvent>> =>
  get(`${one(path)}/events`, { cursor, limit })
/** One, in full. */
export const event = (path: string, number: number): Promise<TriggerEvent> => get(`${one(path)}/events/${number}`)
