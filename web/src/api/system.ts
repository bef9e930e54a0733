import type { Page } from './listed.svelte'
import { get, segment } from './client'
import type { ApiToken, AuditEntry, Check, Credential, DeadLetter, DeadLetterWithBody, Limit, LimitWithSlots, Partition, Pool, Stored, Worker } from './types'

const PAGE = 100

async function itemsAt<Item>(path: string): Promise<Item[]> {
  return (await get<{ items: Item[] }>(path)).items
}

export const checks = (): Promise<Check[]> => itemsAt('/doctor')
export const pools = (): Promise<Pool[]> => itemsAt('/pools')
/** The keys that are held or waited for, by key and namespace. */
export const limits = (limit: number): Promise<Page<Limit>> => get('/limits', { limit })
/** Of a key in a namespace, where an empty one is that which namespaces share; null: in the only one that has it. */
export const limitOf = (key: string, namespace: string | null): Promise<LimitWithSlots> =>
  get(`/limits/${segment(key)}${namespace === null ? '' : `?namespace=${segment(namespace)}`}`)
export const workers = (): Promise<Worker[]> => itemsAt('/workers')
export const partitions = (): Promise<Partition[]> => itemsAt('/partitions')
export const credentials = (): Promise<Credential[]> => itemsAt('/credentials')
export const tokens = (): Promise<ApiToken[]> => itemsAt('/tokens')
export const storage = (): Promise<Stored[]> => itemsAt('/storage')
export const deadLetters = (cursor: string | null): Promise<Page<DeadLetter>> => get('/dead-letters', { cursor, limit: PAGE })
export const deadLetter = (id: string): Promise<DeadLetterWithBody> => get(`/dead-letters/${segment(id)}`)

export interface AuditQuery {
  principal?: string
  operation?: string
  target?: string
  refused?: string
}
export const audit = (query: AuditQuery, cursor: string | null, limit = PAGE): Promise<Page<AuditEntry>> =>
  get('/audit', { ...query, cursor, limit })
