import { outlineOf, find, type Mapping, type Node, type Pair } from '../editor/outline'

/** A change of a text; offsets count UTF-16 units. */
export interface Edit {
  from: number
  to: number
  insert: string
}

/** Where in a document: the keys from its root on. */
export type Path = readonly string[]

/** The value at a path of a YAML text; undefined if there is none, or the text cannot be read so far. */
export function valueAt(text: string, path: Path): unknown {
  const node = find(outlineOf(text), path)
  return node === null ? undefined : valueOf(node, text)
}

function valueOf(node: Node, text: string): unknown {
  if (node.is === 'list') return node.items.map((item) => (item === null ? null : valueOf(item, text)))
  if (node.is === 'mapping') {
    const inner = (value: Node | null): unknown => (value === null ? null : valueOf(value, text))
    return Object.fromEntries(node.pairs.map(({ key, value }) => [String(scalarOf(text.slice(key.from, key.to))), inner(value)]))
  }
  return scalarOf(text.slice(node.from, node.to))
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/

function scalarOf(raw: string): unknown {
  if (raw.startsWith("'")) return raw.slice(1, -1).replaceAll("''", "'")
  if (raw.startsWith('"')) return unescaped(raw)
  if (/^[|>]/.test(raw)) return raw.split('\n').slice(1).map((line) => line.trim()).join('\n').trimEnd()
  const plain = raw.replace(/\s*\n\s*/g, ' ')
  if (plain === 'true' || plain === 'false') return plain === 'true'
  if (/^(?:null|~|)$/.test(plain)) return null
  return NUMBER.test(plain) && String(Number(plain)) === plain ? Number(plain) : plain
}

function unescaped(raw: string): string {
  try {
    return JSON.parse(raw) as string
  } catch {
    return raw.slice(1, -1)
  }
}

/** The change that puts a value at a path, or, if it is undefined, takes away what is there; null if nothing changes. */
export function edited(text: string, path: Path, value: unknown): Edit | null {
  let at = outlineOf(text)
  for (const [depth, key] of path.entries()) {
    if (at?.is !== 'mapping') return null
    const pair = at.pairs.find((one) => one.key.text === key)
    const below = path.slice(depth + 1)
    const isMade = pair === undefined || (below.length > 0 && pair.value?.is !== 'mapping')
    if (isMade && value === undefined) return null
    if (pair === undefined) return added(text, at, `${key}: ${written(nested(below, value))}`)
    if (isMade || below.length === 0) return value === undefined ? removed(text, at, pair) : replaced(text, pair, nested(below, value))
    at = pair.value
  }
  return null
}

const nested = (below: Path, value: unknown): unknown => below.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value)

/** Also what stands below the key in a block; what stands behind it is kept. */
const replaced = (text: string, { key, to }: Pair, value: unknown): Edit => ({
  from: key.from,
  to,
  insert: `${text.slice(key.from, key.to)}: ${written(value)}`,
})

const isFlow = (text: string, { from, pairs }: Mapping): boolean => /[{,]\s*$/.test(text.slice(0, from)) || (pairs.length === 0 && text[from] === '{')

function added(text: string, mapping: Mapping, pair: string): Edit {
  const last = mapping.pairs.at(-1)
  if (last === undefined) return { from: mapping.from + 1, to: mapping.from + 1, insert: pair }
  if (isFlow(text, mapping)) return { from: last.to, to: last.to, insert: `, ${pair}` }
  const indent = ' '.repeat(mapping.from - lineStart(text, mapping.from))
  const end = lineEnd(text, last.to)
  return { from: end, to: end, insert: `\n${indent}${pair}` }
}

function removed(text: string, mapping: Mapping, pair: Pair): Edit {
  const at = mapping.pairs.indexOf(pair)
  const [before, after] = [mapping.pairs[at - 1], mapping.pairs[at + 1]]
  if (!isFlow(text, mapping)) {
    return { from: lineStart(text, pair.key.from), to: Math.min(text.length, lineEnd(text, pair.to) + 1), insert: '' }
  }
  if (before) return { from: before.to, to: pair.to, insert: '' }
  return { from: pair.key.from, to: after ? after.key.from : pair.to, insert: '' }
}

const lineStart = (text: string, offset: number): number => text.lastIndexOf('\n', offset - 1) + 1

function lineEnd(text: string, offset: number): number {
  const end = text.indexOf('\n', offset)
  return end < 0 ? text.length : end
}

const PLAIN_KEY = /^[a-z_][\w.-]*$/i
const PLAIN = /^(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z_][\w./-]*$|^[1-9]\d*[smhd]$/i

/** A value in YAML's flow style. */
function written(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(written).join(', ')}]`
  if (typeof value === 'string') return PLAIN.test(value) ? value : JSON.stringify(value)
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  return `{${Object.entries(value).map(([key, one]) => `${PLAIN_KEY.test(key) ? key : JSON.stringify(key)}: ${written(one)}`).join(', ')}}`
}
