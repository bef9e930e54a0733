import { eventRows, type EventChoice, type EventRow } from '../../api/executions'

const PAGE = 100
const MOST = 5_000
/** So many pages in a row may have nothing before it is asked whether to go on. */
const EMPTY_PAGES = 5

/** The events that filters find, in the order of the journal: more are searched for when the end comes on screen. */
export class FoundEvents {
  rows = $state.raw<EventRow[]>([])
  /** Up to which position the journal was searched; null once it was to its end. */
  searched = $state<number | null>(0)
  busy = $state(false)
  failure = $state.raw<unknown>(null)
  #stop = new AbortController()

  constructor(
    private readonly id: string,
    private readonly choice: EventChoice,
  ) {
    void this.more()
  }

  get isFull(): boolean {
    return this.rows.length >= MOST
  }

  /** Searches on until something is found, the journal ends, or it takes too long. */
  more = async (): Promise<void> => {
    if (this.busy || this.searched === null || this.isFull) return
    this.busy = true
    try {
      const before = this.rows.length
      for (let pages = 0; pages < EMPTY_PAGES && this.searched !== null && this.rows.length - before < PAGE; pages++) {
        const page = await eventRows({ ...this.choice, execution_id: this.id, after: this.searched, limit: PAGE, abort: this.#stop.signal })
        this.rows = [...this.rows, ...page.items]
        this.searched = page.next
      }
      this.failure = null
    } catch (error) {
      if (!this.#stop.signal.aborted) this.failure = error
    } finally {
      this.busy = false
    }
  }

  end(): void {
    this.#stop.abort()
  }
}
