import { client } from '../../api/client'
import { eventRows, type EventRow } from '../../api/executions'
import { Latest } from '../../api/paced'
import type { ExecutionState } from 'noetl-stream-client'

const EVERY_MS = 80

/** An execution as it was at a position of its journal, or as it is: `position` is null then. */
export class Past {
  position = $state<number | null>(null)
  /** That of the position, or while it is moved, of one before. */
  state = $state.raw<ExecutionState | null>(null)
  event = $state.raw<EventRow | null>(null)
  failure = $state.raw<unknown>(null)
  #latest = new Latest<number>((position, signal) => this.#read(position, signal), EVERY_MS)

  constructor(private readonly id: string) {}

  look(position: number | null): void {
    if (position === this.position) return
    this.position = position
    if (position !== null) this.#latest.ask(position)
    else this.state = this.event = null
  }

  end(): void {
    this.#latest.end()
  }

  async #read(position: number, signal: AbortSignal): Promise<void> {
    try {
      const [state, events] = await Promise.all([
        client.getState({ execution_id: this.id, position, abort: signal }),
        eventRows({ execution_id: this.id, after: position - 1, limit: 1, abort: signal }),
      ])
      if (this.position === null) return
      this.state = state
      this.event = events.items[0] ?? null
      this.failure = null
    } catch (error) {
      if (!signal.aborted) this.failure = error
    }
  }
}
