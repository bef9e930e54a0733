import { client } from '../../api/client'
import { connection } from '../../api/connection.svelte'
import { Paced } from '../../api/paced'
import { follow } from '../../api/stream'
import type { Execution, Why } from 'noetl-stream-client'
import { hasEnded } from '../../parts/status'

const REFRESH_MS = 700
/** How long what stands below the answer to why is not seen without it: its lines would move it. */
const PATIENCE_MS = 1000

/** One execution as it is now: read again when its journal grows, which a stream tells. */
export class LiveExecution {
  shown = $state.raw<Execution | null>(null)
  why = $state.raw<Why | null>(null)
  failure = $state.raw<unknown>(null)
  /** Whether why was answered, or takes so long that the rest is shown without it. */
  explained = $state(false)
  #refresh = new Paced(() => this.#read(), REFRESH_MS)
  /** Apart, and not before there is something to see: of a long journal it takes longer. */
  #explain = new Paced(() => this.#readWhy(), REFRESH_MS)
  #stream: (() => void) | null = null
  #mended = connection.onMended(() => this.again())

  constructor(readonly id: string) {
    this.again()
  }

  again = (): void => {
    this.#refresh.ask()
    if (this.shown !== null) this.#explain.ask()
  }

  end(): void {
    this.#stream?.()
    this.#mended()
    this.#refresh.end()
    this.#explain.end()
  }

  async #read(): Promise<void> {
    try {
      const shown = await client.getExecution({ execution_id: this.id })
      if (this.shown === null) {
        this.#explain.ask()
        setTimeout(() => (this.explained = true), PATIENCE_MS)
      }
      this.shown = shown
      this.failure = null
      if (!hasEnded(shown.status)) this.#follow(shown.position)
    } catch (error) {
      this.failure = error
    }
  }

  async #readWhy(): Promise<void> {
    try {
      this.why = await client.explainExecution({ execution_id: this.id })
    } catch (error) {
      this.failure ??= error
    } finally {
      this.explained = true
    }
  }

  /** From the position that was read: the history before it is not sent again. */
  #follow(position: number): void {
    let after = position
    this.#stream ??= follow(
      (abort) => client.execution(this.id).events({ after, abort }),
      (event) => {
        after = event.position
        this.again()
      },
      this.again,
    )
  }
}
