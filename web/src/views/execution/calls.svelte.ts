import { client } from '../../api/client'
import { eventOf } from '../../api/executions'
import type { ExecutionGraph } from 'noetl-stream-client'
import type { Net } from '../graph/layout'
import { arcStatesOf, statesNow, total, type Inside } from '../graph/passed'

/** The executions that steps have called and that are open in the graph, by the steps that lead to them. */
export class OpenCalls {
  #open = $state.raw(new Map<string, ExecutionGraph>())
  failure = $state.raw<unknown>(null)

  /** Opens what the step at this path has called last, or closes it. */
  async turn(root: string, path: string[]): Promise<void> {
    const key = keyOf(path)
    if (this.#open.has(key)) {
      this.#open = new Map([...this.#open].filter(([one]) => one !== key && !one.startsWith(`${key}\n`)))
      return
    }
    const caller = path.length === 1 ? root : this.#open.get(keyOf(path.slice(0, -1)))?.execution_id
    const step = path.at(-1)
    if (caller === undefined || step === undefined) return
    try {
      const called = await lastCall(caller, step)
      if (called === undefined) throw new Error(`${step} has called no playbook yet.`)
      this.#open = new Map([...this.#open, [key, await client.getExecutionGraph({ execution_id: called, so_far: true })]])
      this.failure = null
    } catch (error) {
      this.failure = error
    }
  }

  /** What is open: the steps that lead to it, and its execution. */
  links(): [string, string][] {
    return [...this.#open].map(([key, net]) => [key.replaceAll('\n', ' › '), net.execution_id])
  }

  /** The graph with what is open inside its steps. */
  net(graph: Net, path: string[] = []): Net {
    const inner = graph.steps.flatMap((step): [string, Net][] => {
      const found = this.#open.get(keyOf([...path, step]))
      return found ? [[step, this.net(found.graph, [...path, step])]] : []
    })
    return { ...graph, inner: Object.fromEntries(inner) }
  }

  /** What is known of what is open inside the steps at a path. */
  inside(path: string[] = []): Map<string, Inside> {
    const found = new Map<string, Inside>()
    for (const [key, net] of this.#open) {
      const at = key.split('\n')
      if (at.length !== path.length + 1 || keyOf(at.slice(0, -1)) !== keyOf(path)) continue
      found.set(at.at(-1) ?? '', { states: statesNow(net.steps, []), arcs: arcStatesOf(net.arcs), inner: this.inside(at) })
    }
    return found
  }

  /** The steps that have called playbooks, by the steps that lead to them. */
  calling(root: ExecutionGraph): Set<string> {
    const all: [string[], ExecutionGraph][] = [[[], root], ...[...this.#open].map(([key, net]): [string[], ExecutionGraph] => [key.split('\n'), net])]
    return new Set(
      all.flatMap(([path, { graph, steps }]) => {
        const begun = new Set(steps.filter((one) => total(one.runs) > 0).map((one) => one.step))
        return graph.nodes.filter((one) => one.kinds.includes('playbook') && begun.has(one.step)).map((one) => keyOf([...path, one.step]))
      }),
    )
  }
}

const keyOf = (path: string[]): string => path.join('\n')

const LAST = 2 ** 31 - 1

/** The execution that a step has called last. */
const lastCall = async (execution_id: string, step: string): Promise<string | undefined> =>
  (await eventOf({ execution_id, before: LAST, name: ['child.requested'], step }))?.data['execution_id'] as string | undefined
