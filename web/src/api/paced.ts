/** Runs `work` soon after it is asked for, once for all that asked meanwhile, and at most once in `everyMs`. */
export class Paced {
  #timer: ReturnType<typeof setTimeout> | null = null
  #again = false
  #busy = false
  #last = 0
  #ended = false

  constructor(
    private readonly work: () => Promise<void>,
    private readonly everyMs: number,
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
    this.#last = performance.now()
    try {
      await this.work()
    } finally {
      this.#busy = false
      if (this.#again) this.ask()
    }
  }
}
