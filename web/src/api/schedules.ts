import { get, segment } from './client'
import type { Page } from './listed.svelte'
import type { Occurrence, RegisteredSchedule, Upcoming } from './types'

const SHOWN = 1000
const one = (path: string): string => `/schedules/${segment(path)}`

/** By path; the first thousand. */
export const schedules = async (): Promise<RegisteredSchedule[]> =>
  (await get<Page<RegisteredSchedule>>('/schedules', { limit: SHOWN })).items
export const upcoming = async (path: string, count: number): Promise<Upcoming[]> =>
  (await get<{ items: Upcoming[] }>(`${one(path)}/upcoming`, { count })).items
/** Newest first. */
export const history = (path: string, cursor: string | null, limit: number): Promise<Page<Occurrence>> =>
  get(`${one(path)}/history`, { cursor, limit })
