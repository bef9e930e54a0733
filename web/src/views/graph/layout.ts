import type { Arc, StepNode } from 'noetl-stream-client'
import script from './layout.worker.ts?worker&url'

/** What is drawn: the steps of a playbook, and what leads from one to another. */
export interface Net {
  steps: string[]
  arcs: Pick<Arc, 'from' | 'to' | 'when' | 'index'>[]
  nodes?: Pick<StepNode, 'step' | 'is_finally' | 'undone_by'>[]
  /** The playbooks that steps have called, where they are open, by step. */
  inner?: Record<string, Net>
  /** Whether it goes from top to bottom, and not from left to right. */
  down?: boolean
}

export interface Placed {
  step: string
  x: number
  y: number
  width: number
  height: number
  inner: Layout | null
  /** Whether it runs at every end. */
  last: boolean
  /** The kinds of the tasks that undo it. */
  undoneBy: string[]
}

/** What is to be seen of steps, and of arcs by their key: a word, which is their class; and more `words` about steps. */
export interface Marks {
  steps: ReadonlyMap<string, string>
  arcs?: ReadonlyMap<string, string>
  words?: ReadonlyMap<string, readonly string[]>
}

export interface Point {
  x: number
  y: number
}

/** An arc with its line, and the rectangle that holds it. */
export interface Drawn {
  from: string
  to: string
  when: string | null
  index: number
  points: Point[]
  path: string
  x: number
  y: number
  width: number
  height: number
}

/** A graph with places for its steps, in pixels; `x` and `y` are their upper left corners. */
export interface Layout {
  width: number
  height: number
  steps: Placed[]
  arcs: Drawn[]
}

export const NODE_HEIGHT = 32
/** Around an open playbook inside its step. */
export const INNER_PAD = 8
const CHARACTER = 7.5
const MOST_CHARACTERS = 28

export const shortened = (step: string): string =>
  step.length > MOST_CHARACTERS ? `${step.slice(0, MOST_CHARACTERS - 1)}…` : step
export const widthOf = (step: string): number => 44 + shortened(step).length * CHARACTER

let worker: Worker | null = null
let asked = 0
const waiting = new Map<number, (layout: Layout) => void>()

/** Lays a graph out, in a worker: however large it is, the page stays responsive. */
export function layoutOf(graph: Net): Promise<Layout> {
  if (worker === null) {
    worker = new Worker(trusted(script), { type: 'module' })
    worker.onmessage = (message: MessageEvent<{ id: number; layout: Layout }>) => {
      waiting.get(message.data.id)?.(message.data.layout)
      waiting.delete(message.data.id)
    }
  }
  const id = ++asked
  worker.postMessage({ id, graph })
  return new Promise((resolve) => waiting.set(id, resolve))
}

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): { createScriptURL(url: string): string }
}

/** The Content-Security-Policy lets scripts be named by this policy alone, where browsers know such policies. */
function trusted(url: string): string {
  const types = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes
  return types?.createPolicy('noetl-worker', { createScriptURL: () => script }).createScriptURL(url) ?? url
}
