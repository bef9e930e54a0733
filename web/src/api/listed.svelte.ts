/** How many are read at once. */
export const PAGE = 100

/** How many to read, a page or so many as are shown; the gateway gives no more than a thousand. */
export const pageSize = (shown: number): number => Math.min(1000, Math.max(20, shown))

export interface Page<Item> {
  items: Item[]
  next: string | null
}

/** A list that comes in pages: the first at once, the others when they are asked for. */
export class Listed<Item> {
  rows = $state.raw<Item[]>([])
  loaded = $state(false)
  busy = $state(false)
  failure = $state.raw<unknown>(null)
  #next = $state<string | null>(null)
  #again = false

  /** `shown`: how many rows there are, of which none should go when they are read again. */
  constructor(private readonly read: (cursor: string | null, shown: number) => Promise<Page<Item>>) {
    this.again()
  }

  get hasMore(): boolean {
    return this.#next !== null
  }

  /** From the first page on. */
  again = (): void => void this.#read(null)

  more = (): void => {
    if (this.#next !== null) void this.#read(this.#next)
  }

  async #read(cursor: string | null): Promise<void> {
    if (this.busy) {
      this.#again ||= cursor === null
      return
    }
    this.busy = true
    try {
      const page = await this.read(cursor, cursor === null ? this.rows.length : 0)
      this.rows = cursor === null ? page.items : [...this.rows, ...page.items]
      this.#next = page.next
      this.failure = null
    } catch (error) {
      this.failure = error
    }
    this.loaded = true
    this.busy = false
    if (!this.#again) return
    this.#again = false
    this.again()
  }
}
