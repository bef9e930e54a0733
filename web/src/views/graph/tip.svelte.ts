/** What a part of the graph says while the pointer is over it or it has the focus. */
export interface Tip {
  lines: string[]
  left: number
  /** Below the part, or above it where there is no room. */
  top: number | null
  bottom: number | null
}

const WIDTH = 360
const ROOM = 180
const GAP = 6
/** So long the pointer may take from the part to what it says. */
const STAYS_MS = 200

export class Tips {
  shown = $state.raw<Tip | null>(null)
  #leaving: ReturnType<typeof setTimeout> | undefined
  #part: Element | null = null

  show(part: Element, lines: string[]): void {
    this.stay()
    this.#part = part
    this.#place(part, lines)
  }

  /** Says what a part says now, if it is the one that is shown. */
  update(part: Element, lines: string[]): void {
    if (part === this.#part) this.#place(part, lines)
  }

  #place(part: Element, lines: string[]): void {
    const box = part.getBoundingClientRect()
    const isBelow = box.bottom + ROOM < innerHeight || box.top < ROOM
    this.shown = {
      lines,
      left: Math.max(GAP, Math.min(box.left, innerWidth - WIDTH - GAP)),
      top: isBelow ? box.bottom + GAP : null,
      bottom: isBelow ? null : innerHeight - box.top + GAP,
    }
  }

  stay = (): void => clearTimeout(this.#leaving)

  /** Hides what is said, soon: unless the pointer has left another part than the one that says it. */
  leave = (part?: Element): void => {
    if (part !== undefined && part !== this.#part) return
    this.stay()
    this.#leaving = setTimeout(this.hide, STAYS_MS)
  }

  hide = (): void => {
    this.stay()
    this.#part = null
    this.shown = null
  }
}
