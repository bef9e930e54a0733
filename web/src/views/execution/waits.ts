import type { Guard, PlacedToken } from 'noetl-stream-client'

/** What a token waits for, in a line: the guard with the values that it reads, a signal, a child, a pool. */
export function waitsFor({ waiting_on: on }: Pick<PlacedToken, 'waiting_on'>): string {
  if (on === null) return ''
  if (on.signal) return `signal ${on.signal}`
  if (on.child) return `${on.child.path} ${on.child.execution_id}`
  if (on.join) return `${on.join.arrived.length} of ${on.join.tokens ?? 'its tokens'} arrived`
  const guards = (on.guards ?? []).map((guard) => {
    const known = valuesOf(guard)
    return known ? `${guard.when}: ${known}` : guard.when
  })
  if (guards.length > 0) return guards.join('; ')
  if (on.pool) return `a worker of pool ${on.pool.pool}`
  return on.timer ? `until ${on.timer.due}` : ''
}

/** What a guard reads, in a line: `ctx.approved is missing`. */
export function valuesOf({ values, missing }: Guard): string {
  const known = Object.entries(values).map(([path, value]) => `${path} is ${JSON.stringify(value)}`)
  return [...known, ...missing.map((path) => `${path} is missing`)].join(', ')
}
