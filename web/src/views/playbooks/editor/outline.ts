import { yamlLanguage } from '@codemirror/lang-yaml'
import type { SyntaxNode } from '@lezer/common'

/** A YAML document as it stands in the text, also while it has mistakes. Offsets count UTF-16 units. */
export type Node = Mapping | List | Scalar

export interface Mapping {
  is: 'mapping'
  from: number
  to: number
  pairs: Pair[]
}

export interface Pair {
  key: Scalar
  value: Node | null
  to: number
}

export interface List {
  is: 'list'
  from: number
  to: number
  items: (Node | null)[]
}

export interface Scalar {
  is: 'scalar'
  from: number
  to: number
  text: string
}

export type Step = string | number

export function outlineOf(text: string): Node | null {
  const document = yamlLanguage.parser.parse(text).topNode.getChild('Document')
  return document ? firstOf(document, text) : null
}

const VALUES = new Set(['BlockMapping', 'FlowMapping', 'BlockSequence', 'FlowSequence', 'Literal', 'QuotedLiteral', 'BlockLiteral'])

/** The value among the children of a node; anchors and tags are passed over. */
function firstOf(node: SyntaxNode, text: string): Node | null {
  for (let child = node.firstChild; child; child = child.nextSibling) {
    if (VALUES.has(child.name)) return read(child, text)
    if (child.name === 'Anchored' || child.name === 'Tagged') return firstOf(child, text)
  }
  return null
}

function read(node: SyntaxNode, text: string): Node {
  const { from, to } = node
  if (node.name === 'BlockMapping' || node.name === 'FlowMapping') {
    const pairs = node.getChildren('Pair').flatMap((pair) => pairOf(pair, text))
    return { is: 'mapping', from: pairs[0]?.key.from ?? from, to, pairs }
  }
  if (node.name === 'BlockSequence') {
    return { is: 'list', from, to, items: node.getChildren('Item').map((item) => firstOf(item, text)) }
  }
  if (node.name === 'FlowSequence') {
    const items = node.getChildren('Item')
    return { is: 'list', from, to, items: items.map((item) => firstOf(item, text)) }
  }
  return { is: 'scalar', from, to, text: unquoted(text.slice(from, to)) }
}

function pairOf(pair: SyntaxNode, text: string): Pair[] {
  const named = pair.getChild('Key')
  const key = named && firstOf(named, text)
  if (!named || key?.is !== 'scalar') return []
  let value: Node | null = null
  for (let child = named.nextSibling; child && !value; child = child.nextSibling) {
    if (VALUES.has(child.name)) value = read(child, text)
    else if (child.name === 'Anchored' || child.name === 'Tagged') value = firstOf(child, text)
  }
  return [{ key, value, to: pair.to }]
}

function unquoted(text: string): string {
  const quoted = /^(["'])([\s\S]*)\1$/.exec(text)
  return quoted?.[2] ?? text
}

/** What `path` leads to. */
export function find(node: Node | null, path: readonly Step[]): Node | null {
  let at = node
  for (const step of path) {
    if (at?.is === 'list' && typeof step === 'number') at = at.items[step] ?? null
    else at = member(at, String(step))
  }
  return at
}

export function member(node: Node | null, key: string): Node | null {
  return node?.is === 'mapping' ? (node.pairs.find((pair) => pair.key.text === key)?.value ?? null) : null
}

export const keysOf = (node: Node | null): string[] =>
  node?.is === 'mapping' ? node.pairs.map((pair) => pair.key.text) : []

export const textOf = (node: Node | null): string | null => (node?.is === 'scalar' ? node.text : null)

export const itemsOf = (node: Node | null): (Node | null)[] => (node?.is === 'list' ? node.items : [])

/** Where an offset is: at a key, which ends the path, or at a value. */
export interface Found {
  path: Step[]
  at: 'key' | 'value'
}

export function pathTo(node: Node | null, offset: number): Found {
  const path: Step[] = []
  let at = node
  while (at !== null && at.is !== 'scalar') {
    if (at.is === 'list') {
      const index = at.items.findIndex((item) => item !== null && item.from <= offset && offset <= item.to)
      if (index < 0) break
      path.push(index)
      at = at.items[index] ?? null
      continue
    }
    const pair = at.pairs.find(({ key, to }) => key.from <= offset && offset <= to)
    if (!pair) break
    path.push(pair.key.text)
    if (offset <= pair.key.to) return { path, at: 'key' }
    at = pair.value
  }
  return { path, at: 'value' }
}

/** What is being written at an offset: where it will stand, and the letters that are there already. */
export interface Place extends Found {
  from: number
  word: string
  outline: Node | null
}

const PLACEHOLDER = 'zz'

/** The place at an offset. A key or value that has not been written yet is read as if it had. */
export function placeAt(text: string, offset: number): Place {
  const start = text.lastIndexOf('\n', offset - 1) + 1
  const end = text.indexOf('\n', offset)
  const before = text.slice(start, offset)
  const after = text.slice(offset, end < 0 ? text.length : end)
  const word = /[\w-]*$/.exec(before)?.[0] ?? ''
  const from = offset - word.length
  const lead = before.slice(0, before.length - word.length)
  const filled = fill(lead, after)
  const read = filled === null ? text : `${text.slice(0, from)}${filled}${text.slice(offset)}`
  const outline = outlineOf(read)
  const found = pathTo(outline, from)
  return { ...found, from, word, outline }
}

/** What makes sense of a line whose key or value is not there yet; null where it is. */
function fill(lead: string, after: string): string | null {
  if (/^\s*(?:- +)*$/.test(lead)) return /^[\w-]*\s*:/.test(after) ? null : `${PLACEHOLDER}: 0${after.trim() ? ' #' : ''}`
  if (/[{,]\s*$/.test(lead) && lead.lastIndexOf('{') > lead.lastIndexOf('}') && lead.lastIndexOf('{') > lead.lastIndexOf('[')) {
    return /^[\w-]*\s*:/.test(after) ? null : `${PLACEHOLDER}: 0${after.includes('}') ? '' : '}'}`
  }
  return /^\s*(?:[},\]#]|$)/.test(after) ? PLACEHOLDER : null
}
