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
