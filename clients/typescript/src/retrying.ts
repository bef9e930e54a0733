// Retries of requests: backoff with jitter, a budget, and an end. Times are in ms.

const FIRST = 200
const LONGEST = 10_000
const JITTER = 0.2
/** The retries that each first try allows. */
const SHARE = 0.1
/** The retries that are allowed in any case. */
const FLOOR_PER_MS = 1 / 1000
/** The retries after a time without any. */
const MOST = 20

/** The retries that a client may make, all calls together, so that what is overloaded can recover. */
export class RetryBudget {
  #left: number
  #seen = performance.now()

  constructor(readonly most: number = MOST) {
    this.#left = most
  }

  /** Counts a first try. */
  noteFirst(): void {
    this.#left = Math.min(this.#left + SHARE, this.most)
  }

  /** Whether a retry may be made now, which it counts. */
  take(): boolean {
    const now = performance.now()
    this.#left = Math.min(this.#left + (now - this.#seen) * FLOOR_PER_MS, this.most)
    this.#seen = now
    if (this.#left < 1) return false
    this.#left -= 1
    return true
  }
}

/** The retries of one request, until `within` after its first failure, and not after `end`. */
export class Retries {
  #tries = 0
  #until: number | null = null

  constructor(
    readonly budget: RetryBudget,
    readonly within: number,
    readonly end: number = Infinity,
  ) {
    budget.noteFirst()
  }

  /** The pause before the next try; null: there is none. `atLeast` is what the gateway asks for. */
  pause(atLeast = 0, most = Infinity): number | null {
    const backoff = Math.min(FIRST * 2 ** this.#tries, LONGEST) * (1 - JITTER + 2 * JITTER * Math.random())
    const pause = Math.max(backoff, atLeast)
    const now = performance.now()
    this.#until ??= Math.min(now + this.within, this.end)
    if (this.#tries >= most || now + pause > this.#until) return null
    this.#tries = Math.min(this.#tries + 1, 32)
    return this.budget.take() ? pause : null
  }
}
