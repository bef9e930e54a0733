import type { Bulk, BulkItem } from 'noetl-stream-client'
import { client } from '../../api/client'
import { MOST_AT_ONCE, operationOf, selected, type BulkVerb, type Selection } from './bulk'

/** How many executions one dialog concerns at most. */
export const MOST = 10_000

/** Executions of one call: after each, the progress is shown. */
const AT_A_TIME = 50

/** A verb for a selection: tried first, then done to those that it would be done to, some at a time. */
export class BulkRun {
  phase = $state<'trying' | 'ready' | 'running' | 'stopped' | 'over'>('trying')
  tried = $state.raw<BulkItem[]>([])
  /** Whether more match than are concerned. */
  cut = $state(false)
  acted = $state.raw<BulkItem[]>([])
  failure = $state.raw<unknown>(null)
  #waiting: string[] = []
  #key = ''
  #isEnded = false

  constructor(
    private readonly verb: BulkVerb,
    private readonly selection: Selection,
  ) {
    void this.look()
  }

  /** The dry run. */
  look = async (): Promise<void> => {
    this.phase = 'trying'
    this.failure = null
    const found: BulkItem[] = []
    try {
      for await (const items of this.#pages()) {
        found.push(...items)
        this.tried = [...found]
      }
    } catch (error) {
      this.failure = error
      return
    }
    this.#waiting = found.filter((one) => one.outcome === 'would').map((one) => one.execution_id)
    this.phase = 'ready'
  }

  async run(reason: string, step: string): Promise<void> {
    this.phase = 'running'
    this.failure = null
    while (this.#waiting.length > 0 && this.phase === 'running') {
      const ids = this.#waiting.slice(0, AT_A_TIME)
      this.#key ||= crypto.randomUUID() // the same one if it is not known whether these are done
      try {
        const { items } = await this.#ask({ ids, step, reason, request_id: this.#key })
        const left = items.filter((one) => one.outcome === 'left').map((one) => one.execution_id)
        this.#waiting = [...this.#waiting.slice(AT_A_TIME), ...left]
        this.#key = ''
        this.acted = [...this.acted, ...items.filter((one) => one.outcome !== 'left')]
      } catch (error) {
        this.failure = error
        this.phase = 'stopped'
        return
      }
    }
    this.phase = this.#waiting.length > 0 ? 'stopped' : 'over'
  }

  /** No further ones are begun. */
  stop(): void {
    if (this.phase === 'running') this.phase = 'stopped'
  }

  end(): void {
    this.#isEnded = true
    this.stop()
  }

  async *#pages(): AsyncGenerator<BulkItem[]> {
    const { selection } = this
    if ('ids' in selection) {
      for (let first = 0; first < selection.ids.length && !this.#isEnded; first += MOST_AT_ONCE) {
        yield (await this.#try({ ids: selection.ids.slice(first, first + MOST_AT_ONCE) })).items
      }
      return
    }
    let cursor: string | null = null
    for (let count = 0; count < MOST && !this.#isEnded; ) {
      const page = await this.#try({ ...selected(selection), ...(cursor === null ? {} : { cursor }) })
      count += page.items.length
      yield page.items
      cursor = page.next
      if (cursor === null) return
    }
    this.cut = cursor !== null
  }

  #try(which: object): Promise<Bulk> {
    return this.#ask({ ...which, step: 'any', dry_run: true })
  }

  /** What a verb does not take, as `step` where nothing is rerun, is not sent. */
  #ask(given: Parameters<typeof client.rerunExecutions>[0]): Promise<Bulk> {
    return (client[operationOf(this.verb)] as typeof client.rerunExecutions)(given)
  }
}
