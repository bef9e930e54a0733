const PAGE = 100
const KEPT = 30

/** A long list by place: pages are read when they come on screen, the oldest are forgotten. */
export class Pages<Item> {
  failure = $state.raw<unknown>(null)
  /** How many there are, where the list says so itself; null: not known yet. */
  count = $state<number | null>(null)
  #pages = $state.raw(new Map<number, Item[]>())
  #asked = new Map<number, number>()

  /**
   * @param read some items from the one at `first` on, at most `limit`.
   */
  constructor(private readonly read: (first: number, limit: number) => Promise<Item[]>) {}

  at(index: number): Item | undefined {
    return this.#pages.get(Math.floor(index / PAGE))?.[index % PAGE]
  }

  /** Reads what is missing of these places; `count` items are in the list. */
  show(first: number, last: number, count: number): void {
    for (let page = Math.floor(first / PAGE); page * PAGE < Math.min(last, count); page++) {
      const there = Math.min(PAGE, count - page * PAGE)
      if ((this.#asked.get(page) ?? 0) < there) void this.#read(page, there)
    }
  }

  /** What is there may have changed: it is read again when it is shown next. */
  again(): void {
    this.#asked.clear()
  }

  async #read(page: number, there: number): Promise<void> {
    this.#asked.set(page, there)
    try {
      const items = await this.read(page * PAGE, PAGE)
      const pages = new Map(this.#pages)
      pages.delete(page)
      pages.set(page, items)
      for (const old of [...pages.keys()].slice(0, Math.max(0, pages.size - KEPT))) {
        pages.delete(old)
        this.#asked.delete(old)
      }
      this.#pages = pages
      this.failure = null
    } catch (error) {
      this.#asked.delete(page)
      this.failure = error
    }
  }
}
