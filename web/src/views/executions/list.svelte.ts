import { client } from '../../api/client'
import { connection } from '../../api/connection.svelte'
import { Paced } from '../../api/paced'
import { follow } from '../../api/stream'
import type { ListedExecution } from 'noetl-stream-client'
import type { Filter } from '../../query'
import { merged } from './merge'

const PAGE = 100
const REFRESH_MS = 1000

/** What may change a row: its status, or that it is there. */
const TELLING = [
  ...['requested', 'started', 'finished', 'paused', 'resumed', 'quarantined', 'failing', 'closing'].map((verb) => `execution.${verb}`),
  ...['step.suspended', 'step.resumed', 'next.resting', 'token.held', 'token.claimed'],
]

/** The executions that a filter finds, kept as they are now: the first page is read again when something happens. */
export class ExecutionList {
  rows = $state.raw<ListedExecution[]>([])
  failure = $state.raw<unknown>(null)
  loaded = $state(false)
  #cursor: string | null = null
  #more: Promise<void> | null = null
  #refresh = new Paced(() => this.#readFirst(), REFRESH_MS)
  #ending: (() => void)[] = []

  /** `told`: called when something has happened. */
  constructor(
    private readonly filter: Filter,
    told: () => void,
  ) {
    this.#refresh.ask()
    this.#ending = [
      follow((abort) => client.events({ names: TELLING, abort }), () => (this.#refresh.ask(), told())),
      connection.onMended(() => (this.#refresh.ask(), told())),
      () => this.#refresh.end(),
    ]
  }

  get hasMore(): boolean {
    return this.#cursor !== null
  }

  again = (): void => this.#refresh.ask()

  /** Reads the next page, unless that is under way. */
  more(): void {
    if (this.#cursor === null) return
    this.#more ??= this.#readMore(this.#cursor).finally(() => (this.#more = null))
  }

  end(): void {
    for (const one of this.#ending) one()
  }

  async #readFirst(): Promise<void> {
    try {
      const page = await client.listExecutions({ ...this.filter, limit: PAGE })
      const rows = merged(this.rows, page.items, page.next === null)
      if (rows.length === page.items.length) this.#cursor = page.next
      this.rows = rows
      this.failure = null
    } catch (error) {
      this.failure = error
    }
    this.loaded = true
  }

  async #readMore(cursor: string): Promise<void> {
    try {
      const page = await client.listExecutions({ ...this.filter, limit: PAGE, cursor })
      const known = new Set(this.rows.map((one) => one.execution_id))
      this.rows = [...this.rows, ...page.items.filter((one) => !known.has(one.execution_id))]
      this.#cursor = page.next
    } catch (error) {
      this.failure = error
    }
  }
}
