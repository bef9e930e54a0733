import { find, itemsOf, keysOf, member, textOf, type Node, type Step } from './outline'

/** The names that a playbook declares. */
export interface Names {
  steps: string[]
  /** Tasks by their step. */
  tasks: Map<string, string[]>
  ctx: string[]
  vars: string[]
  iter: string[]
  args: string[]
  keychain: string[]
  workbook: string[]
  workload: Node | null
}

const SETS: Record<string, 'ctx' | 'vars' | 'iter'> = { set_ctx: 'ctx', set_shared: 'ctx', set_vars: 'vars', set_iter: 'iter' }

export function namesIn(document: Node | null): Names {
  const found: Names = {
    steps: [],
    tasks: new Map(),
    ctx: [],
    vars: [],
    iter: [],
    args: [],
    keychain: itemsOf(member(document, 'keychain')).flatMap((entry) => textOf(member(entry, 'name')) ?? []),
    workbook: keysOf(find(document, ['workbook', 'tasks'])),
    workload: member(document, 'workload'),
  }
  for (const step of itemsOf(member(document, 'workflow'))) {
    const name = textOf(member(step, 'step'))
    if (name === null) continue
    found.steps.push(name)
    found.tasks.set(name, tasksIn(member(step, 'tool')))
    collect(step, found)
  }
  for (const list of [found.ctx, found.vars, found.iter, found.args]) list.splice(0, Infinity, ...new Set(list))
  return found
}

/** The step that a path leads into. */
export function stepAt(document: Node | null, path: readonly Step[]): string | null {
  return path[0] === 'workflow' ? textOf(find(document, [...path.slice(0, 2), 'step'])) : null
}

/** The names of the tasks of a pipeline, those of its constructs included. */
function tasksIn(tool: Node | null): string[] {
  return itemsOf(tool).flatMap((entry) => {
    const name = textOf(member(entry, 'name'))
    if (name !== null) return [name, ...constructed(entry)]
    const labels = keysOf(entry)
    return labels.length === 1 && !member(entry, 'kind') ? labels : []
  })
}

function constructed(entry: Node | null): string[] {
  const rounds = ['while', 'until'].flatMap((word) => tasksIn(find(entry, [word, 'do'])))
  const branches = itemsOf(member(entry, 'choose')).flatMap((rule) => [
    ...tasksIn(member(rule, 'then')),
    ...tasksIn(find(rule, ['else', 'then'])),
  ])
  return [...rounds, ...branches]
}

/** What rules set, iterators, and the args of arcs, anywhere below a node. */
function collect(node: Node | null, found: Names): void {
  for (const item of itemsOf(node)) collect(item, found)
  if (node?.is !== 'mapping') return
  for (const { key, value } of node.pairs) {
    const set = SETS[key.text]
    if (set) found[set].push(...keysOf(value))
    else if (key.text === 'iterator' && textOf(value)) found.iter.push(textOf(value) ?? '')
    else if (key.text === 'arcs') for (const arc of itemsOf(value)) found.args.push(...keysOf(member(arc, 'args')))
    collect(value, found)
  }
}
