/** A line of a log as rows of at most so many characters: `line` is its place, `from` where the row begins in it. */
export interface WrappedRow {
  line: number
  from: number
}

/** The rows of lines, in a script in which each character is equally wide; `columns` 0 does not wrap. */
export function wrapped(lines: readonly { text: string }[], columns: number): WrappedRow[] {
  return lines.flatMap(({ text }, line) => {
    const rows = columns > 0 ? Math.max(1, Math.ceil(text.length / columns)) : 1
    return Array.from({ length: rows }, (_, row) => ({ line, from: row * columns }))
  })
}
