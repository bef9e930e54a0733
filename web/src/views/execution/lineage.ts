import type { DataReference, Dataset, DataUse } from 'noetl-stream-client'
import type { Marks, Net } from '../graph/layout'

/** So many tasks, files and tables are drawn. */
export const MOST_DRAWN = 300

/** A task, with how many of its attempts have read or written anything, and what. */
export interface TaskUse {
  name: string
  attempts: number
  read: string[]
  written: string[]
}

export interface Lineage {
  net: Net
  marks: Marks
  tasks: TaskUse[]
  /** How many tasks, files and tables are not drawn. */
  left: number
}

/** What tasks have read and written, as a graph: from each file to the tasks that have read it, and so on. */
export function lineageOf(uses: readonly DataUse[]): Lineage {
  const names = new Map<string, string>()
  const words = new Map<string, string[]>()
  const kinds = new Map<string, string>()
  const tasks = new Map<string, TaskUse>()
  const steps = new Set<string>()
  const arcs = new Map<string, Net['arcs'][number]>()
  const named = (one: DataReference): string => {
    const known = names.get(one.key)
    if (known !== undefined) return known
    const isTable = one.columns !== null && one.columns !== undefined
    const plain = one.name || (isTable ? 'table' : 'file')
    let name = plain
    for (let number = 2; words.has(name) || tasks.has(name); number++) name = `${plain} (${number})`
    names.set(one.key, name)
    kinds.set(name, isTable ? 'table' : 'file')
    words.set(name, isTable ? [`${(one.rows ?? 0).toLocaleString('en')} rows`, ...columnWords(one)] : [`${one.size.toLocaleString('en')} bytes`])
    return name
  }
  const placed = ({ namespace, name: within }: Dataset): string => {
    const name = `${namespace}/${within.replace(/^\//, '')}`
    names.set(name, name)
    kinds.set(name, 'elsewhere')
    words.set(name, [])
    return name
  }
  for (const use of uses) {
    const name = use.task === use.step || use.task === '' ? use.step : `${use.step}.${use.task}`
    const task = tasks.get(name) ?? { name, attempts: 0, read: [], written: [] }
    tasks.set(name, task)
    task.attempts += 1
    const elsewhere = (isWritten: boolean): string[] =>
      (use.datasets ?? []).filter((one) => (one.written ?? false) === isWritten).map((one) => placed(one))
    const [read, written] = [[...use.read.map(named), ...elsewhere(false)], [...use.written.map(named), ...elsewhere(true)]]
    for (const one of read) if (!task.read.includes(one)) task.read.push(one)
    for (const one of written) if (!task.written.includes(one)) task.written.push(one)
    const arc = (from: string, to: string): void => {
      for (const one of [from, to]) if (steps.size < MOST_DRAWN) steps.add(one)
      if (steps.has(from) && steps.has(to)) arcs.set(`${from}\n${to}`, { from, to, when: null, index: 0 })
    }
    for (const one of read) arc(one, name)
    for (const one of written) arc(name, one)
  }
  for (const task of tasks.values()) words.set(task.name, [`${task.attempts.toLocaleString('en')} attempt${task.attempts === 1 ? '' : 's'}`])
  for (const name of tasks.keys()) kinds.set(name, 'task')
  return {
    net: { steps: [...steps], arcs: [...arcs.values()] },
    marks: { steps: kinds, words },
    tasks: [...tasks.values()],
    left: tasks.size + names.size - steps.size,
  }
}

const columnWords = (one: DataReference): string[] => (one.columns ?? []).slice(0, 20).map(({ name, type }) => `${name} ${type}`)
