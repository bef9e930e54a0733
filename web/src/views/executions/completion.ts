import { NAMES, STATUSES } from '../../query'

/** What is known of the words that a line may have. */
export interface Known {
  paths: readonly string[]
  /** Values by the names of labels. */
  labels: ReadonlyMap<string, ReadonlySet<string>>
}

export interface Completion {
  /** What the options stand for, of the line. */
  from: number
  to: number
  options: { text: string; note: string }[]
}

const MOST = 14
const AGES = ['1h', '24h', '7d', '30d']
const DURATIONS = ['10s', '1m', '10m', '1h']

/** How the word at the caret may go on. */
export function completion(line: string, caret: number, known: Known): Completion {
  const { from, word } = wordAt(line, caret)
  const colon = word.indexOf(':')
  if (colon < 0) {
    const names = Object.keys(NAMES).filter((name) => name.startsWith(word))
    const paths = word === '' ? [] : known.paths.filter((path) => path.includes(word))
    const options = [
      ...names.map((name) => ({ text: `${name}:`, note: NAMES[name] ?? '' })),
      ...paths.map((path) => ({ text: `path:${quoted(path)}`, note: '' })),
    ]
    return { from, to: caret, options: options.slice(0, MOST) }
  }
  const [name, value] = [word.slice(0, colon), word.slice(colon + 1).replace(/^"/, '')]
  const options = values(name, value, known).filter((one) => one !== value)
  return { from, to: caret, options: options.slice(0, MOST).map((one) => ({ text: `${name}:${quoted(one)}`, note: '' })) }
}

/** The line in which an option stands, and where the caret is then: behind a space, unless there is more to say. */
export function completed(line: string, { from, to }: Completion, option: string): { line: string; caret: number } {
  const more = /[:=]$/.test(option) || line[to] === ' ' ? '' : ' '
  return { line: line.slice(0, from) + option + more + line.slice(to), caret: from + option.length + (more === '' && line[to] === ' ' ? 1 : more.length) }
}

/** The part of the word before the caret; spaces within quotes belong to it. */
function wordAt(line: string, caret: number): { from: number; word: string } {
  let [from, isQuoted] = [0, false]
  for (let at = 0; at < caret; at++) {
    if (line[at] === '"') isQuoted = !isQuoted
    else if (line[at] === ' ' && !isQuoted) from = at + 1
  }
  return { from, word: line.slice(from, caret) }
}

function values(name: string, value: string, known: Known): string[] {
  switch (name) {
    case 'status': {
      const last = value.lastIndexOf(',') + 1
      const given = value.slice(0, last)
      return STATUSES.filter((one) => one.startsWith(value.slice(last)) && !given.includes(one)).map((one) => given + one)
    }
    case 'path':
      return [...known.paths].sort((a, b) => Number(b.startsWith(value)) - Number(a.startsWith(value))).filter((one) => one.includes(value))
    case 'label': {
      const [key = '', ...rest] = value.split('=')
      if (rest.length === 0) return [...known.labels.keys()].filter((one) => one.startsWith(key)).map((one) => `${one}=`)
      return [...(known.labels.get(key) ?? [])].filter((one) => one.startsWith(rest.join('='))).map((one) => `${key}=${one}`)
    }
    case 'longer-than':
      return DURATIONS.filter((one) => one.startsWith(value))
    case 'since':
    case 'until':
    case 'older-than':
      return AGES.filter((one) => one.startsWith(value))
    default:
      return []
  }
}

const quoted = (value: string): string => (/\s/.test(value) ? `"${value}"` : value)

/** The labels of what is shown, and of the playbooks. */
export function labelsOf(documents: Iterable<{ labels: Record<string, unknown> }>): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const { labels } of documents) {
    for (const [key, value] of Object.entries(labels)) {
      if (value === null) continue
      const known = found.get(key) ?? new Set()
      found.set(key, known.add(typeof value === 'string' ? value : JSON.stringify(value)))
    }
  }
  return found
}
