/** Rows above and below those on screen that are drawn too, so that scrolling shows no gap. */
const BEYOND = 8

/** The rows that a window of `height` pixels shows at `top`: from `first` to before `last`. */
export function visible(top: number, height: number, rowHeight: number, count: number): { first: number; last: number } {
  const first = Math.max(0, Math.min(Math.floor(top / rowHeight), count) - BEYOND)
  return { first, last: Math.min(count, Math.ceil((top + height) / rowHeight) + BEYOND) }
}
