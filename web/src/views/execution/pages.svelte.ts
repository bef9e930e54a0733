import { events, type Event } from '../../api/executions'

const PAGE = 100
const KEPT = 30

/** The events of a journal by their place in it: pages are read when they come on screen, the oldest are forgotten. */
export class EventPages {
  failure = $state.raw<unknown>(null)
  #pages = $state.raw(new Map<number, Event[]>())
  #asked = new Map<number, number>()

  constructor(private readonly id: string) {}

  at(index: number): Event | undefined {
    return this.#pages.get(Math.floor(index / PAGE))?.[index % PAGE]
  }

  /** Reads what is missing of these places; `count` events are in the journal. */
  show(first: number, last: number, count: number): void {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) {
      const there = Math.min(PAGE, count - page * PAGE)
      if ((this.#asked.get(page) ?? 0) < there) void this.#read(page, there)
    }
  }

  async #read(page: number, there: number): Promise<void> {
    this.#asked.set(page, there)
    try {
      const { items } = await events(this.id, page * PAGE, PAGE)
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
