import { requestOf } from 'noetl-stream-client'

/** A reference to a file or table, as far as people need it. */
export interface StoredFile {
  key: string
  size: number
  checksum: string
  seal: string
  name?: string
  media_type?: string
  columns?: readonly unknown[]
  rows?: number
  /** Of a part of a table, its first row. */
  first?: number
}

/** The reference that a value is; null for any other. */
export function fileOf(value: unknown): StoredFile | null {
  if (typeof value !== 'object' || value === null) return null
  const { key, size, checksum, seal } = value as Partial<StoredFile>
  const is = typeof key === 'string' && /\/parts-\d+$/.test(key) && [checksum, seal].every((one) => typeof one === 'string')
  return is && typeof size === 'number' ? (value as StoredFile) : null
}

export const nameOf = (file: StoredFile): string => file.name || (file.columns ? 'table.parquet' : 'file')

/** What is known of it: `3 columns, 1,000 rows, 20,480 bytes`. */
export function aboutOf(file: StoredFile): string {
  const of = file.columns ? [`${file.columns.length} columns`, `${(file.rows ?? 0).toLocaleString('en')} rows`] : [file.media_type]
  return [...of, `${file.size.toLocaleString('en')} bytes`].filter(Boolean).join(', ')
}

/** Where it is downloaded, of an execution that holds it. */
export function downloadOf(file: StoredFile, execution: string): string {
  const { key, size, checksum, seal } = file
  return requestOf('getFile', { execution_id: execution, key, size, checksum, seal, name: nameOf(file) }).path
}

/** Of a text as much is shown, and of a file as much is read to know what it is. */
export const MOST_TEXT = 64 * 1024
const MOST_IMAGE = 4 * 1024 * 1024

/** How the pictures begin that are shown. SVG is none of them: it is a document. */
const IMAGES: readonly [type: string, begins: readonly number[], at?: number][] = [
  ['image/png', [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ['image/jpeg', [0xff, 0xd8, 0xff]],
  ['image/gif', [0x47, 0x49, 0x46, 0x38]],
  ['image/webp', [0x57, 0x45, 0x42, 0x50], 8],
]

/** The type of the picture that begins with these bytes, whatever its name says. */
export const imageType = (bytes: Uint8Array): string | null =>
  IMAGES.find(([, begins, at = 0]) => begins.every((byte, index) => bytes[at + index] === byte))?.[0] ?? null

export type Preview =
  | { kind: 'image'; url: string }
  | { kind: 'json'; value: unknown }
  | { kind: 'text'; text: string; isCut: boolean }
  | { kind: 'other' }

/** What is shown of a file, of which these are the first bytes, or all. Nothing in it is run. */
export function previewOf(bytes: Uint8Array, size: number): Preview {
  const type = imageType(bytes)
  if (type !== null) return bytes.length === size ? { kind: 'image', url: `data:${type};base64,${base64(bytes)}` } : { kind: 'other' }
  const shown = bytes.subarray(0, MOST_TEXT)
  const isCut = shown.length < size
  if (shown.includes(0)) return { kind: 'other' }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(shown, { stream: isCut })
  } catch {
    return { kind: 'other' }
  }
  if (!isCut && /^\s*[[{]/.test(text)) {
    try {
      return { kind: 'json', value: JSON.parse(text) }
    } catch {
      /* It is text then. */
    }
  }
  return { kind: 'text', text, isCut }
}

/** The first bytes of a file: of a picture all, if they are not too many. The rest is not fetched. */
export async function startOf(file: StoredFile, execution: string, abort: AbortSignal): Promise<Uint8Array> {
  const answer = await fetch(downloadOf(file, execution), { signal: abort })
  if (!answer.ok || answer.body === null) throw new Error(`The gateway answered ${answer.status}: the file cannot be read.`)
  const reader = answer.body.getReader()
  const found: Uint8Array[] = []
  let [length, most] = [0, MOST_TEXT]
  while (length < most) {
    const { done, value } = await reader.read()
    if (done) break
    found.push(value)
    length += value.length
    if (found.length === 1 && imageType(value) !== null && file.size <= MOST_IMAGE) most = file.size
  }
  void reader.cancel().catch(() => undefined)
  const all = new Uint8Array(length)
  let at = 0
  for (const one of found) {
    all.set(one, at)
    at += one.length
  }
  return all
}

function base64(bytes: Uint8Array): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(text)
}
