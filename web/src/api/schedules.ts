import { get, segment, type Query } from './client'
import type { Page } from './listed.svelte'
import type { Occurrence, RegisteredSchedule, Upcoming } from './types'

const one = (path: string): string => `/schedules/${segment(path)}`

/** By path. */
export const schedules = (prefix: string, limit: number): Promise<Page<RegisteredSchedule>> => get('/schedules', { prefix, limit })
/** When it is due next, or next after a time. */
export const upcoming = async (path: string, count: number, after: string | null = null): Promise<Upcoming[]> =>
  (await get<{ items: Upcoming[] }>(`${one(path)}/upcoming`, { count, after })).items
/** Newest first. */
export const history = (path: string, query: Query): Promise<Page<Occurrence>> => get(`${one(path)}/history`, query)
