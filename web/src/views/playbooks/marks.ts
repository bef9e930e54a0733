import type { Arc, Graph, PlaybookDiff } from 'noetl-stream-client'
import type { Net } from '../graph/layout'
import { arcKey } from '../graph/passed'

export type Mark = 'added' | 'removed' | 'changed'

/** What differs between two graphs, on one that has the steps and arcs of both. */
export interface Marked {
  graph: Net
  steps: Map<string, Mark>
  arcs: Map<string, Mark>
}

/** Removed arcs stand behind all others of their step. */
const BEHIND = 10_000

export function marked(before: Graph | null, after: Graph, diff: Pick<PlaybookDiff, 'steps' | 'arcs'>): Marked {
  const steps = new Map<string, Mark>([
    ...diff.steps.added.map((step): [string, Mark] => [step, 'added']),
    ...diff.steps.removed.map((step): [string, Mark] => [step, 'removed']),
    ...diff.steps.changed.map((step): [string, Mark] => [step, 'changed']),
  ])
  const arcs = new Map<string, Mark>()
  const left = diff.arcs.filter((one) => one.change !== 'removed')
  for (const arc of after.arcs) {
    const index = left.findIndex((one) => one.from === arc.from && one.to === arc.to && plain(one.when) === plain(arc.when))
    const [change] = index < 0 ? [] : left.splice(index, 1)
    if (change) arcs.set(arcKey(arc), change.change)
  }
  const gone = diff.arcs
    .filter((one) => one.change === 'removed')
    .map((one, index): Net['arcs'][number] => ({ from: one.from, to: one.to, when: one.was, index: BEHIND + index }))
  for (const arc of gone) arcs.set(arcKey(arc), 'removed')
  const known = new Set([...after.steps, ...diff.steps.removed])
  const old = (before?.steps ?? []).filter((step) => steps.get(step) === 'removed')
  const drawn = [...after.arcs, ...gone].filter((arc: Pick<Arc, 'from' | 'to'>) => known.has(arc.from) && known.has(arc.to))
  return { graph: { steps: [...after.steps, ...old], arcs: drawn, nodes: after.nodes }, steps, arcs }
}

const plain = (when: string | null): string => (when ?? '').replace(/^\s*\{\{|\}\}\s*$/g, '').replace(/\s+/g, ' ').trim()
