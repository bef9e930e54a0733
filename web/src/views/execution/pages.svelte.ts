const PAGE = 100
const KEPT = 30
/** How long a place far from all that was read is on screen before it is read. */
const REST_MS = 100

/** A long list by place: pages are read when they come on screen, the oldest are forgotten. */
export class Pages<Item> {
  failure = $state.raw<unknown>(null)
  /** How many there are, where the list says so itself; null: not known yet. */
  count = $state<number | null>(null)
  #pages = $state.raw(new Map<number, Item[]>())
  /** By page how many items it has, or had when it was asked for. */
  #asked = new Map<number, number>()
  #shown = { first: 0, end: 0, count: 0 }
  #busy = false
  #ended = false
  #resting: ReturnType<typeof setTimeout> | undefined

  /**
   * @param read some items from the one at `first` on, at most `limit`.
   */
  constructor(private readonly read: (first: number, limit: number) => Promise<Item[]>) {}

  at(index: number): Item | undefined {
    return this.#pages.get(Math.floor(index / PAGE))?.[index % PAGE]
  }

  /**
   * Reads what is missing of these places, of `count` in the list: page by page. What is far from all that was read is
   * read only when it rests on screen: it may be passed over.
   */
  show(first: number, last: number, count: number): void {
    this.#shown = { first: Math.floor(first / PAGE), end: Math.ceil(Math.min(last, count) / PAGE), count }
    clearTimeout(this.#resting)
    if (this.#busy || this.#missing() === undefined) return
    if (this.#isNear()) void this.#readShown()
    else this.#resting = setTimeout(() => void this.#readShown(), REST_MS)
  }

  end(): void {
    this.#ended = true
    clearTimeout(this.#resting)
  }

  /** What is there may have changed: what is on screen is read again, the rest when it is shown next. */
  again(): void {
    this.#asked.clear()
    if (!this.#busy) void this.#readShown()
  }

  /** The first page on screen that is not read, or was read when the list had fewer. */
  #missing(): number | undefined {
    const { first, end } = this.#shown
    for (let page = first; page < end; page++) if ((this.#asked.get(page) ?? 0) < this.#there(page)) return page
    return undefined
  }

  #there = (page: number): number => Math.min(PAGE, this.#shown.count - page * PAGE)

  #isNear(): boolean {
    const { first, end } = this.#shown
    return this.#asked.size === 0 || [...this.#asked.keys()].some((page) => page >= first - 1 && page <= end)
  }

  async #readShown(): Promise<void> {
    this.#busy = true
    for (let page = this.#missing(); page !== undefined && !this.#ended; page = this.#missing()) {
      if (!(await this.#read(page))) break
    }
    this.#busy = false
  }

  /** Whether it could be read. */
  async #read(page: number): Promise<boolean> {
    const there = this.#there(page)
    this.#asked.set(page, there)
    try {
      const items = await this.read(page * PAGE, PAGE)
      if (this.#asked.has(page)) this.#asked.set(page, Math.max(there, items.length))
      const pages = new Map(this.#pages)
      pages.delete(page)
      pages.set(page, items)
      for (const old of [...pages.keys()].slice(0, Math.max(0, pages.size - KEPT))) {
        pages.delete(old)
        this.#asked.delete(old)
      }
      this.#pages = pages
      this.failure = null
      return true
    } catch (error) {
      this.#asked.delete(page)
      this.failure = error
      return false
    }
  }
}
