import type { Filter } from '../query'
import { call, get, segment } from './client'
import type { Ctx, Execution, ExecutionGraph, ExecutionPage, IterationPage, ListedEvent, LogPage, Result, StepRuns, Why } from './types'

const one = (id: string): string => `/executions/${segment(id)}`

export const listed = (filter: Filter, limit: number, cursor: string | null = null): Promise<ExecutionPage> =>
  get('/executions', { ...filter, limit, cursor })

export const execution = (id: string): Promise<Execution> => get(one(id))
export const stepRuns = async (id: string): Promise<StepRuns['items']> => (await get<StepRuns>(`${one(id)}/steps`)).items
export const iterations = (id: string, run: string, cursor: string | null): Promise<IterationPage> =>
  get(`${one(id)}/steps/${segment(run)}/iterations`, { cursor, limit: 100 })
/** With all of its parts, as it is listed where no fields are asked for. */
export type Event = Required<ListedEvent>
export const events = (id: string, after: number, limit: number): Promise<{ items: Event[] }> =>
  get(`${one(id)}/events`, { after, limit })
/** With what is read of a long journal by now: up to its `position`. */
export const graphOf = (id: string): Promise<ExecutionGraph> => get(`${one(id)}/graph`, { so_far: 'true' })
export const why = (id: string): Promise<Why> => get(`${one(id)}/why`)
export const ctxOf = (id: string): Promise<Ctx> => get(`${one(id)}/ctx`)
export const resultOf = (id: string): Promise<Result> => get(`${one(id)}/result`)
export const logsOf = (id: string, query: Record<string, string>): Promise<LogPage> => get(`${one(id)}/logs`, query)

/** Carries out an act. */
export const perform = (act: { method: string; path: string; body?: unknown; media?: string }, reason: string): Promise<unknown> =>
  call(act.method, act.path, { body: act.body, reason, ...(act.media ? { media: act.media } : {}) })
