/** A text that is being written, and what it began from. It survives a reload, in this tab. */
export interface Draft {
  text: string
  /** The digest of the version it began from; null for a new playbook. */
  base: string | null
}

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

export const TEMPLATE = `apiVersion: noetl.io/v2
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
