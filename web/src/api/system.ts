import { get } from './client'

/** What a part of the system lists, as rows of a table: the columns are named in `views/system/parts.ts`. */
export async function rowsOf(path: string): Promise<Record<string, unknown>[]> {
  return (await get<{ items: Record<string, unknown>[] }>(path)).items
}
