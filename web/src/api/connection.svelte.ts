/** Whether the gateway answers, as all calls and streams find it. */
class Connection {
  state = $state<'connected' | 'lost' | 'mended'>('connected')
  #waiting = new Set<() => void>()
  #isBroken = false

  /** Said at the second time in a row: a server may close a connection just when it is used again. */
  lost(): void {
    if (this.#isBroken) this.state = 'lost'
    this.#isBroken = true
  }

  answered(): void {
    this.#isBroken = false
    if (this.state !== 'lost') return
    this.state = 'mended'
    setTimeout(() => {
      if (this.state === 'mended') this.state = 'connected'
    }, MENDED_MS)
    for (const one of this.#waiting) one()
  }

  /** Calls `then` each time the connection is mended, until the returned function is called. */
  onMended(then: () => void): () => void {
    this.#waiting.add(then)
    return () => this.#waiting.delete(then)
  }
}

/** How long it is said that the connection is back. */
const MENDED_MS = 4000

export const connection = new Connection()
