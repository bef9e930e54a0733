import { client } from '../../api/client'
import type { DiffRow, ExecutionDiff } from 'noetl-stream-client'

/** Two executions as they were when they were compared. Rows are read when they come on screen. */
export class Comparison {
  found = $state.raw<ExecutionDiff | null>(null)
  rows = $state.raw<DiffRow[]>([])
  failure = $state.raw<unknown>(null)
  #next: string | null = null
  #busy = false

  constructor(
    private readonly a: string,
    private readonly b: string,
    private readonly all: boolean,
  ) {
    this.again()
  }

  again = (): void => {
    this.#next = null
    void this.#read(null)
  }

  /** The rows up to this one are on screen. */
  showing(last: number): void {
    if (this.#next !== null && last + 20 > this.rows.length) void this.#read(this.#next)
  }

  async #read(cursor: string | null): Promise<void> {
    if (this.#busy) return
    this.#busy = true
    try {
      const page = await client.diffExecutions({ execution_id: this.a, other: this.b, rows: this.all ? 'all' : 'different', cursor, limit: 100 })
      this.rows = cursor === null ? page.rows : [...this.rows, ...page.rows]
      if (cursor === null) this.found = page
      this.#next = page.next
      this.failure = null
    } catch (error) {
      this.failure = error
    } finally {
      this.#busy = false
    }
  }
}
