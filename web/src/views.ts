/** What the page shows, as its address says it: the one place where the two meet. */
export type View =
  | { screen: 'executions'; query: string; group?: string }
  | { screen: 'execution'; id: string; tab: Tab; chosen?: Chosen }
  | { screen: 'diff'; a: string; b: string; all: boolean }
  | { screen: 'playbooks'; words?: string }
  | { screen: 'playbook'; path: string; version: string | null; tab?: PlaybookTab; before?: string; since?: string }
  | { screen: 'new-playbook'; kind?: Starter }
  | ({ screen: 'schedules' | 'triggers' } & StarterChoice)
  | { screen: 'system'; part: Part; choice?: SystemChoice }
  | { screen: 'missing' }

export const TABS = ['steps', 'timeline', 'events', 'ctx', 'result', 'logs', 'lineage'] as const
export type Tab = (typeof TABS)[number]

/** What is chosen within an execution: a position of its journal, a step, a part of the timeline, filters. */
const CHOICES = ['at', 'step', 'run', 'task', 'iteration', 'name', 'text', 'key', 'since', 'until', 'order'] as const
export type Chosen = Partial<Record<(typeof CHOICES)[number], string>>

/** Of a playbook, beside its text. */
export const PLAYBOOK_TABS = ['changes', 'statistics', 'edit'] as const
export type PlaybookTab = (typeof PLAYBOOK_TABS)[number]

export const PARTS = ['health', 'pools', 'limits', 'workers', 'partitions', 'dead-letters', 'credentials', 'tokens', 'audit', 'storage'] as const
export type Part = (typeof PARTS)[number]

/** What is chosen within a part of the system: what is open, for a limit in which namespace, and the filters of the audit. */
const SYSTEM_CHOICES = ['open', 'namespace', 'principal', 'operation', 'target', 'refused'] as const
export type SystemChoice = Partial<Record<(typeof SYSTEM_CHOICES)[number], string>>

/** Documents that start executions by themselves. */
const STARTERS = ['Schedule', 'Trigger'] as const
export type Starter = (typeof STARTERS)[number]

/** What is chosen among schedules or triggers: which are listed, which is open, and what of its past. */
const STARTER_CHOICES = ['prefix', 'open', 'status', 'event'] as const
export type StarterChoice = Partial<Record<(typeof STARTER_CHOICES)[number], string>>

export function viewAt(path: string, search: string): View {
  const query = new URLSearchParams(search)
  const words = path.split('/').filter((word) => word !== '').map(decoded)
  const [screen, one, two, three] = words
  if (screen === 'executions' && one !== undefined && two === 'diff' && three !== undefined && words.length === 4) {
    return { screen: 'diff', a: one, b: three, all: query.get('rows') === 'all' }
  }
  if (words.length > 3) return { screen: 'missing' }
  if (screen === undefined || (screen === 'executions' && one === undefined)) {
    const group = query.get('group')
    return { screen: 'executions', query: query.get('q') ?? '', ...(group ? { group } : {}) }
  }
  if (screen === 'executions' && one !== undefined) {
    const tab = known(TABS, two ?? 'steps')
    if (tab === undefined) return { screen: 'missing' }
    const chosen = chosenIn(query, CHOICES)
    return { screen: 'execution', id: one, tab, ...(chosen && { chosen }) }
  }
  if (screen === 'playbooks' && three === undefined) return playbookAt(one, two, query)
  if ((screen === 'schedules' || screen === 'triggers') && one === undefined) {
    return { screen, ...chosenIn(query, STARTER_CHOICES) }
  }
  const part = known(PARTS, one ?? 'health')
  if (screen !== 'system' || part === undefined || two !== undefined) return { screen: 'missing' }
  const choice = chosenIn(query, SYSTEM_CHOICES)
  return { screen: 'system', part, ...(choice && { choice }) }
}

function playbookAt(path: string | undefined, word: string | undefined, query: URLSearchParams): View {
  if (path === undefined) {
    const words = query.get('q')
    const kind = known(STARTERS, query.get('new') ?? '')
    return query.has('new') ? { screen: 'new-playbook', ...(kind && { kind }) } : { screen: 'playbooks', ...(words && { words }) }
  }
  const tab = word === undefined ? undefined : known(PLAYBOOK_TABS, word)
  if (word !== undefined && !tab) return { screen: 'missing' }
  const [before, since] = [query.get('before'), query.get('since')]
  return {
    screen: 'playbook',
    path,
    version: query.get('version'),
    ...(tab && { tab }),
    ...(before && { before }),
    ...(since && { since }),
  }
}

export function addressOf(view: View): string {
  switch (view.screen) {
    case 'executions':
      return `/${queryOf({ q: view.query, group: view.group ?? '' }, ['q', 'group'])}`
    case 'execution':
      return `/executions/${encodeURIComponent(view.id)}${view.tab === 'steps' ? '' : `/${view.tab}`}${queryOf(view.chosen, CHOICES)}`
    case 'diff': {
      const [a, b] = [view.a, view.b].map(encodeURIComponent)
      return `/executions/${a}/diff/${b}${view.all ? '?rows=all' : ''}`
    }
    case 'playbooks':
      return `/playbooks${queryOf({ q: view.words ?? '' }, ['q'])}`
    case 'playbook': {
      const { path, version, tab, before, since } = view
      const query = new URLSearchParams()
      for (const [name, value] of Object.entries({ version, before, since })) if (value) query.set(name, value)
      return `/playbooks/${encodeURIComponent(path)}${tab ? `/${tab}` : ''}${query.size > 0 ? `?${query.toString()}` : ''}`
    }
    case 'new-playbook':
      return `/playbooks?new=${view.kind ?? 1}`
    case 'schedules':
    case 'triggers':
      return `/${view.screen}${queryOf(view, STARTER_CHOICES)}`
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

function queryOf<Name extends string>(chosen: Partial<Record<Name, string>> = {}, names: readonly Name[]): string {
  const query = new URLSearchParams()
  for (const name of names) if (chosen[name]) query.set(name, chosen[name])
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
