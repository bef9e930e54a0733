import type { ArcActivity, Reason, StepRun } from '../../api/types'

/** What the runs of a step come to, and why it waits. */
export interface StepState {
  status: string
  runs: number
  loop: string
  reason: string
}

const WEIGHT = ['running', 'waiting', 'failed', 'cancelled', 'done', 'reused']

export function statesOf(runs: readonly StepRun[], reasons: readonly Reason[]): Map<string, StepState> {
  const found = new Map<string, StepState>()
  for (const run of runs) {
    const known = found.get(run.step)
    const status = known && WEIGHT.indexOf(known.status) < WEIGHT.indexOf(run.status) ? known.status : run.status
    const loop = run.loop ? `${run.loop.ok + run.loop.failed + run.loop.skipped}/${run.loop.count}` : (known?.loop ?? '')
    found.set(run.step, { status, runs: (known?.runs ?? 0) + 1, loop, reason: '' })
  }
  for (const { step, sentence } of reasons) {
    if (step !== null) found.set(step, { runs: 0, loop: '', ...found.get(step), status: 'waiting', reason: sentence })
  }
  return found
}

/** How often an arc was taken, and in words what it last decided by. */
export interface ArcState {
  fired: number
  words: string
}

/** An arc, by the step it leaves and its place there: two may lead to one step. */
export const arcKey = (arc: { from: string; index: number }): string => `${arc.from} ${arc.index}`

export function arcStatesOf(arcs: readonly ArcActivity[]): Map<string, ArcState> {
  return new Map(arcs.map((arc) => [arcKey(arc), { fired: arc.fired, words: wordsOf(arc) }]))
}

function wordsOf({ fired, skipped, last }: ArcActivity): string {
  const guard = last?.guard
  const values = Object.entries(guard?.values ?? {}).map(([path, value]) => `${path} is ${JSON.stringify(value)}`)
  const missing = (guard?.missing ?? []).map((path) => `${path} is missing`)
  const known = [...values, ...missing].join(', ')
  return `taken ${times(fired)}, not taken ${times(skipped)}${known ? `; last: ${known}` : ''}`
}

const times = (count: number): string => (count === 1 ? 'once' : `${count} times`)
