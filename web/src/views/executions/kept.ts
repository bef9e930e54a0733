import { FIRST, type Column } from './columns'

/** A view of the executions that has a name: its line, its grouping and its columns. */
export interface SavedView {
  name: string
  query: string
  group: string
  columns: Column[]
}

const COLUMNS_KEY = 'noetl_columns'
const VIEWS_KEY = 'noetl_views'
export const MOST_VIEWS = 30
const MOST_COLUMNS = 12

const isText = (value: unknown): value is string => typeof value === 'string'
const columnsIn = (value: unknown): Column[] | null => (Array.isArray(value) && value.every(isText) ? value.slice(0, MOST_COLUMNS) : null)

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null')
  } catch {
    return null // whatever is kept there, the page works without it
  }
}

function viewIn(value: unknown): SavedView[] {
  const { name, query, group, columns } = (value ?? {}) as Record<string, unknown>
  const chosen = columnsIn(columns)
  return isText(name) && isText(query) && isText(group) && chosen ? [{ name, query, group, columns: chosen }] : []
}

/** The columns that were chosen in this browser. */
export const keptColumns = (): Column[] => columnsIn(read(COLUMNS_KEY)) ?? [...FIRST]
export const keepColumns = (columns: readonly Column[]): void => localStorage.setItem(COLUMNS_KEY, JSON.stringify(columns))

/** The views that were saved in this browser, by name. */
export function savedViews(): SavedView[] {
  const found = read(VIEWS_KEY)
  return Array.isArray(found) ? found.slice(0, MOST_VIEWS).flatMap(viewIn) : []
}

/** Keeps a view in place of one with its name; the views are kept by name. */
export function saveView(view: SavedView): SavedView[] {
  return keepViews([...savedViews().filter((one) => one.name !== view.name), view])
}

export const forgetView = (name: string): SavedView[] => keepViews(savedViews().filter((one) => one.name !== name))

function keepViews(views: readonly SavedView[]): SavedView[] {
  const kept = [...views].sort((a, b) => a.name.localeCompare(b.name)).slice(0, MOST_VIEWS)
  localStorage.setItem(VIEWS_KEY, JSON.stringify(kept))
  return kept
}
