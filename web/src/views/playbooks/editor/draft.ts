/** A text that is being written, and what it began from. It survives a reload, in this tab. */
export interface Draft {
  text: string
  /** The digest of the version it began from; null for a new playbook. */
  base: string | null
}

/** What a document is; of others than playbooks the schema of playbooks says nothing. */
export type Kind = 'Playbook' | 'Schedule' | 'Trigger' | 'Schema'
export const kindIn = (text: string): Kind => (/^kind: *(Schedule|Trigger|Schema)\b/m.exec(text)?.[1] ?? 'Playbook') as Kind

const keyOf = (path: string): string => `noetl-draft ${path}`

export function kept(path: string): Draft | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(keyOf(path)) ?? 'null') as Partial<Draft> | null
    return typeof found?.text === 'string' ? { text: found.text, base: found.base ?? null } : null
  } catch {
    return null
  }
}

/** False if there is no room for it. */
export function keep(path: string, draft: Draft): boolean {
  try {
    sessionStorage.setItem(keyOf(path), JSON.stringify(draft))
    return true
  } catch {
    return false
  }
}

export const forget = (path: string): void => sessionStorage.removeItem(keyOf(path))

const SCHEDULE = `apiVersion: noetl.io/v2
kind: Schedule
metadata: {name: example, path: examples/nightly}
spec:
  playbook: examples/example
  workload: {greeting: good night}
  cron: ["30 2 * * *"]
  timezone: UTC
`
const TRIGGER = `apiVersion: noetl.io/v2
kind: Trigger
metadata: {name: example, path: examples/greetings}
spec:
  on: {webhook: {verify: github, credential: github_webhook}}
  playbook: examples/example
  workload: {greeting: "{{ event.json.greeting }}"}
`
const PLAYBOOK = `apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: example
  path: examples/example
workload:
  greeting: hello
workflow:
  - step: start
    tool:
      kind: noop
      args: {said: "{{ workload.greeting }}"}
`

/** What a new document begins with. */
export const template = (kind: Kind): string => ({ Playbook: PLAYBOOK, Schedule: SCHEDULE, Trigger: TRIGGER, Schema: '' })[kind]
