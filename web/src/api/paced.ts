/** By default, how much longer than an answer took it is waited before the next request: slow answers cost a gateway most. */
const REST = 4

/**
 * Runs `work` soon after it is asked for, once for all that asked meanwhile, and at most once in `everyMs`; less often
 * if it takes long.
 */
export class Paced {
  #timer: ReturnType<typeof setTimeout> | null = null
  #again = false
  #busy = false
  #last = -Infinity
  #ended = false

  constructor(
    private readonly work: () => Promise<void>,
    private readonly everyMs: number,
    private readonly rest = REST,
  ) {}

  ask(): void {
    if (this.#ended) return
    if (this.#busy) this.#again = true
    else this.#timer ??= setTimeout(() => void this.#run(), Math.max(0, this.#last + this.everyMs - performance.now()))
  }

  end(): void {
    this.#ended = true
    if (this.#timer !== null) clearTimeout(this.#timer)
  }

  async #run(): Promise<void> {
    this.#timer = null
    this.#busy = true
    this.#again = false
    const begun = performance.now()
    try {
      await this.work()
    } finally {
      this.#busy = false
      this.#last = Math.max(begun, performance.now() + this.rest * (performance.now() - begun) - this.everyMs)
      if (this.#again) this.ask()
    }
  }
}

/** How long an answer that is no longer wanted may take before it is given up for the next. */
const PATIENCE_MS = 400

/**
 * Asks for what is wanted now, while that changes many times a second: one request at a time, at most one in `everyMs`.
 * A request that takes long is cancelled for the next.
 */
export class Latest<Wanted> {
  #wanted: Wanted | null = null
  #timer: ReturnType<typeof setTimeout> | null = null
  #stop: AbortController | null = null
  #begun = -Infinity

  constructor(
    private readonly work: (wanted: Wanted, signal: AbortSignal) => Promise<void>,
    private readonly everyMs: number,
  ) {}

  ask(wanted: Wanted): void {
    this.#wanted = wanted
    this.#arm()
  }

  end(): void {
    this.#wanted = null
    this.#stop?.abort()
    if (this.#timer !== null) clearTimeout(this.#timer)
  }

  #arm(): void {
    const rest = this.#stop === null ? this.everyMs : Math.max(this.everyMs, PATIENCE_MS)
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#run(), Math.max(0, this.#begun + rest - performance.now()))
  }

  async #run(): Promise<void> {
    this.#timer = null
    const wanted = this.#wanted
    if (wanted === null) return
    this.#stop?.abort()
    const stop = new AbortController()
    this.#stop = stop
    this.#wanted = null
    this.#begun = performance.now()
    try {
      await this.work(wanted, stop.signal)
    } catch (error) {
      if (!stop.signal.aborted) throw error
    } finally {
      if (this.#stop === stop) this.#stop = null
      if (this.#wanted !== null) this.#arm()
    }
  }
}
