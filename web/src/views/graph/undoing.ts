import type { Compensation, TimelineRow } from 'noetl-stream-client'
import type { StepState } from './passed'

const COMPENSATION = '__compensation'

/** The step whose runs a compensation undoes; null: the step is none. */
export const undoneBy = (step: string): string | null => (step.endsWith(COMPENSATION) ? step.slice(0, -COMPENSATION.length) : null)

/** What became of the runs of a step that can be undone: the status of what undoes them, empty before it begins. */
export interface Undoing {
  status: '' | 'running' | 'done' | 'failed'
  words: string
}

/** The sign in its mark, around a place: back, or a cross where something is left. Shapes tell them apart, not colours alone. */
export const signOf = (status: Undoing['status'], x = 0, y = 0): string =>
  status === 'failed'
    ? `M${x - 4} ${y - 2.5}l1.5-1.5l2.5 2.5l2.5-2.5l1.5 1.5l-2.5 2.5l2.5 2.5l-1.5 1.5l-2.5-2.5l-2.5 2.5l-1.5-1.5l2.5-2.5z`
    : `M${x - 0.5} ${y - 3.5}v7l-4.5-3.5zM${x + 4} ${y - 3.5}v7l-4.5-3.5z`

/** Of a step that is undone by tasks of these kinds; null: nothing undoes it. `ended` is known once the execution has ended. */
export function undoingOf(
  step: string,
  kinds: readonly string[],
  states: ReadonlyMap<string, Pick<StepState, 'status' | 'runs'>> | undefined,
  ended: readonly Compensation[],
): Undoing | null {
  const runs = ended.filter((one) => one.step === step)
  const left = runs.filter((one) => !one.undone)
  if (left[0]) return { status: 'failed', words: `Not undone${ofRuns(left.length, runs.length)}: ${left[0].reason}` }
  if (runs.length > 0) return { status: 'done', words: `Undone${ofRuns(runs.length, runs.length)}` }
  const state = states?.get(`${step}${COMPENSATION}`)
  if (state === undefined) return kinds.length > 0 ? { status: '', words: `Can be undone, by ${kinds.join(', ')}` } : null
  if (state.status === 'done') return { status: 'done', words: `Undone${ofRuns(state.runs, state.runs)}` }
  if (state.status === 'running' || state.status === 'waiting') return { status: 'running', words: 'Being undone' }
  return { status: 'failed', words: 'Not undone: its compensation failed' }
}

/** The same of each step that a timeline has a row of; `undoes` are those that can be undone. */
export function undoingIn(rows: readonly TimelineRow[], undoes: readonly string[], ended: readonly Compensation[]): Map<string, Undoing> {
  const own = rows.filter((one) => one.kind === 'step')
  const states = new Map(own.map((row) => [row.step, { status: statusOf(row), runs: row.count }]))
  return new Map(
    own.flatMap(({ step }): [string, Undoing][] => {
      const ready: Undoing | null = undoes.includes(step) ? { status: '', words: 'Can be undone' } : null
      const found = undoingOf(step, [], states, ended) ?? ready
      return found ? [[step, found]] : []
    }),
  )
}

function statusOf({ spans, activity }: TimelineRow): string {
  const statuses = (spans ?? activity ?? []).map((one) => one.status as string)
  return ['running', 'waiting', 'failed', 'cancelled'].find((one) => statuses.includes(one)) ?? 'done'
}

const ofRuns = (some: number, all: number): string => (all === 1 ? '' : some === all ? `, all ${all} runs` : `, ${some} of ${all} runs`)
