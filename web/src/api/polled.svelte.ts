import { connection } from './connection.svelte'

/** What is read again every few seconds while the page is looked at, and when the connection is mended. */
export class Polled<Value> {
  value = $state.raw<Value | null>(null)
  failure = $state.raw<unknown>(null)
  #ended = false
  #ending: (() => void)[]

  constructor(
    private readonly read: () => Promise<Value>,
    everyS: number,
  ) {
    const timer = setInterval(() => !document.hidden && void this.again(), everyS * 1000)
    this.#ending = [() => clearInterval(timer), connection.onMended(() => void this.again())]
    void this.again()
  }

  again = async (): Promise<void> => {
    try {
      const value = await this.read()
      if (this.#ended) return
      this.value = value
      this.failure = null
    } catch (error) {
      if (!this.#ended) this.failure = error
    }
  }

  end(): void {
    this.#ended = true
    for (const one of this.#ending) one()
  }
}
