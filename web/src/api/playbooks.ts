import { call, get, segment } from './client'
import type {
  Checked,
  Graph,
  Playbook,
  PlaybookDiff,
  PlaybookPage,
  PlaybookStatistics,
  PlaybookVersions,
  PlaybookWithSource,
  Registered,
} from './types'

const YAML = 'application/yaml'
const one = (path: string): string => `/playbooks/${segment(path)}`

/** Those whose path begins so, or that have all `words` somewhere. */
export const playbooks = (found: { prefix: string } | { words: string }, cursor: string | null): Promise<PlaybookPage> =>
  get('/playbooks', { ...found, cursor, limit: 100 })
/** What is no starter of others, with the execution of each that started last. */
export const listedPlaybooks = (words: string, cursor: string | null): Promise<PlaybookPage> =>
  get('/playbooks', { words, cursor, limit: 100, kind: ['Playbook', 'Schema'], last: 'true' })
export const playbook = (path: string, version: string | null): Promise<PlaybookWithSource> => get(one(path), { version })
export const versions = async (path: string): Promise<Playbook[]> =>
  (await get<PlaybookVersions>(`${one(path)}/versions`)).items
export const graph = (path: string, version: string | null): Promise<Graph> => get(`${one(path)}/graph`, { version })

/** What a version says of its starts: its `workload`, the JSON Schema of that, and its priority. */
export async function inputs(path: string, version: string | null): Promise<Inputs> {
  const plan = await get<Partial<Inputs> & { workload_schema?: unknown }>(`${one(path)}/plan`, { version })
  return { workload: plan.workload ?? {}, schema: plan.workload_schema, priority: plan.priority ?? null }
}

export interface Inputs {
  workload: Record<string, unknown>
  schema?: unknown
  /** Null if it names none. */
  priority: number | null
}

export const diff = (path: string, before: string | null, after: string | null): Promise<PlaybookDiff> =>
  get(`${one(path)}/diff`, { before, after })
export const statistics = (path: string, since: string): Promise<PlaybookStatistics> =>
  get(`${one(path)}/statistics`, { since })

/** The JSON Schema of a kind of documents. */
export const schema = (kind: 'Playbook' | 'Schedule' | 'Trigger'): Promise<object> => get('/schema', { kind })
/** The problems of a text, and its graph. */
export const check = (text: string, signal: AbortSignal): Promise<Checked> =>
  call('POST', '/playbooks/check', { body: text, media: YAML, query: { graph: 'true' }, signal })
/** What differs between the latest version and a text. */
export const diffText = (path: string, text: string): Promise<PlaybookDiff> =>
  call('POST', `${one(path)}/diff`, { body: text, media: YAML, query: { name: 'draft' } })
export const register = (text: string): Promise<Registered> => call('POST', '/playbooks', { body: text, media: YAML })
