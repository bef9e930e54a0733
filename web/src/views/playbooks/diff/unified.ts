/** A line of a diff. Numbers count from 1; null on the side that does not have it. */
export interface Line {
  mark: 'same' | 'added' | 'removed' | 'gap'
  old: number | null
  new: number | null
  text: string
}

/** The lines of a unified diff; between hunks is a `gap`. */
export function linesOf(diff: string): Line[] {
  const found: Line[] = []
  let [was, now] = [0, 0]
  let within = false
  for (const row of diff.split('\n')) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(row)
    if (hunk) {
      if (within || Number(hunk[1]) > 1) found.push({ mark: 'gap', old: null, new: null, text: '' })
      ;[was, now, within] = [Number(hunk[1]), Number(hunk[2]), true]
    } else if (!within || row === '') continue
    else if (row.startsWith('+')) found.push({ mark: 'added', old: null, new: now++, text: row.slice(1) })
    else if (row.startsWith('-')) found.push({ mark: 'removed', old: was++, new: null, text: row.slice(1) })
    else if (row.startsWith(' ')) found.push({ mark: 'same', old: was++, new: now++, text: row.slice(1) })
    else found.push({ mark: 'same', old: null, new: null, text: row.slice(2) })
  }
  return found
}

/** Two lines side by side; null where only the other side has one. */
export type Row = [Line | null, Line | null]

/** The lines of both sides beside each other: what was removed stands beside what was added in its place. */
export function rowsOf(lines: readonly Line[]): Row[] {
  const rows: Row[] = []
  let removed: Line[] = []
  let added: Line[] = []
  const settle = (): void => {
    for (let index = 0; index < Math.max(removed.length, added.length); index++) {
      rows.push([removed[index] ?? null, added[index] ?? null])
    }
    ;[removed, added] = [[], []]
  }
  for (const line of lines) {
    if (line.mark === 'removed') removed.push(line)
    else if (line.mark === 'added') added.push(line)
    else {
      settle()
      rows.push([line, line])
    }
  }
  settle()
  return rows
}
