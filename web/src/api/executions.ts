import type { EventPage, ListedEvent, StepRun } from 'noetl-stream-client'
import { client } from './client'

/** A run of a step: the one with this id, or the last. */
export async function lastRun(execution_id: string, step: string, run: string | null): Promise<StepRun | undefined> {
  if (run !== null) return (await client.listSteps({ execution_id, limit: 1, step_run_id: run })).items[0]
  const { count } = await client.listSteps({ execution_id, limit: 1, step })
  return (await client.listSteps({ execution_id, first: Math.max(0, (count ?? 1) - 1), limit: 1, step })).items[0]
}

/** The result of an execution or of a run of its steps, whole. */
export const resultOf = async (execution_id: string, step_run_id?: string): Promise<unknown> =>
  (await (step_run_id === undefined ? client.getResult({ execution_id }) : client.getStepResult({ execution_id, step_run_id }))).result

/** An event with all of its parts, as it is listed where no fields are asked for. */
export type Event = Required<Omit<ListedEvent, 'step'>>

/** The first event that is found so, whole. */
export const eventOf = async (given: Parameters<typeof client.listEvents>[0]): Promise<Event | undefined> =>
  (await client.listEvents({ ...given, limit: 1 })).items[0] as Event | undefined

/** What a list shows of an event: without its data. */
const LISTED = ['position', 'ts', 'name', 'status', 'step_run_id', 'actor', 'task', 'iteration', 'step'] as const
export type EventRow = Required<Pick<ListedEvent, (typeof LISTED)[number]>>

/** Which events a list shows. */
export type EventChoice = Pick<Parameters<typeof client.listEvents>[0], 'name' | 'step' | 'task' | 'text' | 'iteration'>

export const eventRows = async (given: Parameters<typeof client.listEvents>[0]): Promise<EventPage & { items: EventRow[] }> =>
  (await client.listEvents({ ...given, field: LISTED })) as EventPage & { items: EventRow[] }
