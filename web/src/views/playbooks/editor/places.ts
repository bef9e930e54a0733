import type { Diagnostic } from 'noetl-stream-client'

/** A part of a text, in UTF-16 units. */
export interface Range {
  from: number
  to: number
}

/** The part of a text that a diagnostic is about: the word at its line and column, which count from 1, characters. */
export function rangeOf(text: string, { line, column }: Pick<Diagnostic, 'line' | 'column'>): Range {
  let start = 0
  for (let left = line - 1; left > 0; left--) {
    const end = text.indexOf('\n', start)
    if (end < 0) break
    start = end + 1
  }
  const end = text.indexOf('\n', start)
  const row = text.slice(start, end < 0 ? text.length : end)
  const from = start + [...row].slice(0, column - 1).join('').length
  const word = /^(?:[\w./-]+|"[^"]*"|'[^']*'|\S+)/.exec(text.slice(from, start + row.length))
  return { from, to: Math.max(from + (word?.[0].length ?? 0), Math.min(from + 1, text.length)) }
}
