import { call, get, segment } from './client'
import type { Execution, Graph, Playbook, PlaybookPage, PlaybookVersions, PlaybookWithSource } from './types'

const one = (path: string): string => `/playbooks/${segment(path)}`

export const playbooks = (prefix: string, cursor: string | null): Promise<PlaybookPage> =>
  get('/playbooks', { prefix, cursor, limit: 100 })
export const playbook = (path: string, version: string | null): Promise<PlaybookWithSource> => get(one(path), { version })
export const versions = async (path: string): Promise<Playbook[]> =>
  (await get<PlaybookVersions>(`${one(path)}/versions`)).items
export const graph = (path: string, version: string | null): Promise<Graph> => get(`${one(path)}/graph`, { version })
export const start = (path: string, version: string, workload: Record<string, unknown>): Promise<Execution> =>
  call('POST', '/executions', { body: { path, version, workload } })
