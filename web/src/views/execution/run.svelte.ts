import * as api from '../../api/executions'
import { address } from '../../api/client'
import { connection } from '../../api/connection.svelte'
import { Paced } from '../../api/paced'
import { follow } from '../../api/stream'
import type { Execution, StepRun, Why } from '../../api/types'
import { hasEnded } from '../../parts/status'

const REFRESH_MS = 700

/** One execution as it is now: read again when its journal grows, which a stream tells. */
export class LiveExecution {
  shown = $state.raw<Execution | null>(null)
  why = $state.raw<Why | null>(null)
  runs = $state.raw<StepRun[]>([])
  failure = $state.raw<unknown>(null)
  #refresh = new Paced(() => this.#read(), REFRESH_MS)
  #stream: (() => void) | null = null
  #mended = connection.onMended(() => this.#refresh.ask())

  constructor(readonly id: string) {
    this.#refresh.ask()
  }

  again = (): void => this.#refresh.ask()

  end(): void {
    this.#stream?.()
    this.#mended()
    this.#refresh.end()
  }

  async #read(): Promise<void> {
    try {
      const [shown, why, runs] = await Promise.all([api.execution(this.id), api.why(this.id), api.stepRuns(this.id)])
      this.shown = shown
      this.why = why
      this.runs = runs
      this.failure = null
      if (!hasEnded(shown.status)) this.#follow(shown.position)
    } catch (error) {
      this.failure = error
    }
  }

  /** From the position that was read: the history before it is not sent again. */
  #follow(position: number): void {
    this.#stream ??= follow(address(`/executions/${this.id}/events/stream`, { after: position }), {
      events: () => this.#refresh.ask(),
      ended: () => this.#refresh.ask(),
    })
  }
}
