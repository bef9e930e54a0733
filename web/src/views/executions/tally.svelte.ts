import { client } from '../../api/client'
import { Paced } from '../../api/paced'
import type { ExecutionGroups, ExecutionHistogram } from 'noetl-stream-client'
import type { Filter } from '../../query'

const BARS = 120
const REFRESH_MS = 3000

/** How many executions a filter finds, of any status, over time; and in groups, if `by` is not empty. */
export class Tally {
  histogram = $state.raw<ExecutionHistogram | null>(null)
  groups = $state.raw<ExecutionGroups | null>(null)
  failure = $state.raw<unknown>(null)
  loaded = $state(false)
  #refresh = new Paced(() => this.#read(), REFRESH_MS)

  constructor(
    private readonly filter: Filter,
    readonly by: string,
  ) {
    void this.#read()
  }

  ask = (): void => this.#refresh.ask()

  end(): void {
    this.#refresh.end()
  }

  async #read(): Promise<void> {
    try {
      this.histogram = await client.countExecutions({ ...this.filter, status: [], bars: BARS })
      if (this.by !== '') this.groups = await client.groupExecutions({ ...this.filter, by: this.by })
      this.failure = null
    } catch (error) {
      this.failure = error
    }
    this.loaded = true
  }
}
