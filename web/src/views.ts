/** What the page shows, as its address says it: the one place where the two meet. */
export type View =
  | { screen: 'executions'; query: string }
  | { screen: 'execution'; id: string; tab: Tab; chosen?: Chosen }
  | { screen: 'diff'; a: string; b: string; all: boolean }
  | { screen: 'playbooks' }
  | { screen: 'playbook'; path: string; version: string | null }
  | { screen: 'system'; part: Part; choice?: SystemChoice }
  | { screen: 'missing' }

export const TABS = ['steps', 'timeline', 'events', 'ctx', 'result', 'logs'] as const
export type Tab = (typeof TABS)[number]

/** What is chosen within an execution: a position of its journal, a step, a part of the timeline, filters. */
const CHOICES = ['at', 'step', 'run', 'task', 'iteration', 'name', 'text', 'key', 'since', 'until'] as const
export type Chosen = Partial<Record<(typeof CHOICES)[number], string>>

export const PARTS = ['health', 'pools', 'workers', 'partitions', 'dead-letters', 'credentials', 'tokens', 'audit', 'storage'] as const
export type Part = (typeof PARTS)[number]

/** What is chosen within a part of the system: what is open, and the filters of the audit. */
const SYSTEM_CHOICES = ['open', 'principal', 'operation', 'target', 'refused'] as const
export type SystemChoice = Partial<Record<(typeof SYSTEM_CHOICES)[number], string>>

export function viewAt(path: string, search: string): View {
  const query = new URLSearchParams(search)
  const words = path.split('/').filter((word) => word !== '').map(decoded)
  const [screen, one, two, three] = words
  if (screen === 'executions' && one !== undefined && two === 'diff' && three !== undefined && words.length === 4) {
    return { screen: 'diff', a: one, b: three, all: query.get('rows') === 'all' }
  }
  if (words.length > 3) return { screen: 'missing' }
  if (screen === undefined || (screen === 'executions' && one === undefined)) {
    return { screen: 'executions', query: query.get('q') ?? '' }
  }
  if (screen === 'executions' && one !== undefined) {
    const tab = known(TABS, two ?? 'steps')
    if (tab === undefined) return { screen: 'missing' }
    const chosen = chosenIn(query, CHOICES)
    return { screen: 'execution', id: one, tab, ...(chosen && { chosen }) }
  }
  if (screen === 'playbooks' && two === undefined) {
    return one === undefined ? { screen: 'playbooks' } : { screen: 'playbook', path: one, version: query.get('version') }
  }
  const part = known(PARTS, one ?? 'health')
  if (screen !== 'system' || part === undefined || two !== undefined) return { screen: 'missing' }
  const choice = chosenIn(query, SYSTEM_CHOICES)
  return { screen: 'system', part, ...(choice && { choice }) }
}

export function addressOf(view: View): string {
  switch (view.screen) {
    case 'executions':
      return view.query === '' ? '/' : `/?${new URLSearchParams({ q: view.query }).toString()}`
    case 'execution':
      return `/executions/${encodeURIComponent(view.id)}${view.tab === 'steps' ? '' : `/${view.tab}`}${queryOf(view.chosen, CHOICES)}`
    case 'diff': {
      const [a, b] = [view.a, view.b].map(encodeURIComponent)
      return `/executions/${a}/diff/${b}${view.all ? '?rows=all' : ''}`
    }
    case 'playbooks':
      return '/playbooks'
    case 'playbook': {
      const query = view.version === null ? '' : `?${new URLSearchParams({ version: view.version }).toString()}`
      return `/playbooks/${encodeURIComponent(view.path)}${query}`
    }
    case 'system':
      return `/system${view.part === 'health' ? '' : `/${view.part}`}${queryOf(view.choice, SYSTEM_CHOICES)}`
    case 'missing':
      return '/'
  }
}

/** Of the names those that the query gives a value; nothing if it gives none. */
function chosenIn<T extends string>(query: URLSearchParams, names: readonly T[]): Partial<Record<T, string>> | undefined {
  const chosen: Partial<Record<T, string>> = {}
  for (const name of names) {
    const value = query.get(name)
    if (value) chosen[name] = value
  }
  return Object.keys(chosen).length > 0 ? chosen : undefined
}

function queryOf<T extends string>(chosen: Partial<Record<T, string>> = {}, names: readonly T[]): string {
  const query = new URLSearchParams()
  for (const name of names) {
    const value = chosen[name]
    if (value) query.set(name, value)
  }
  return query.size > 0 ? `?${query.toString()}` : ''
}

function known<T extends string>(names: readonly T[], given: string): T | undefined {
  return names.find((name) => name === given)
}

function decoded(word: string): string {
  try {
    return decodeURIComponent(word)
  } catch {
    return word
  }
}
