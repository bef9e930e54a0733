import type { Event, FeedEvent } from './documents.js'
import { ConfigurationError } from './errors.js'
import { ExecutionHandle, type Waiting } from './execution.js'
import { type ApiRequest, type Asked, type Connecting, requestFor, type Route, Transport } from './transport.js'
import { ROUTES, type Verbs } from './verbs.js'

const EVENTS: Route = { method: 'GET', path: '/events/stream', query: ['name'] }

type Starting = NonNullable<Parameters<Verbs['startExecution']>[0]>
type Item<Name extends keyof Verbs> =
  Awaited<ReturnType<Verbs[Name]>> extends { items: (infer One)[]; next: unknown } ? One : never

/** The methods of the verbs are made from their table. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export interface Client extends Verbs {}

/**
 * A client of a gateway.
 *
 * In Node, `url` and `token` are NOETL_URL and NOETL_TOKEN unless they are given. In a page of the gateway, `url` is
 * empty, and `headers` gives what its session needs.
 */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export class Client {
  readonly transport: Transport

  constructor(url?: string, connecting: Connecting = {}) {
    const environment = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env
    const address = url ?? environment?.NOETL_URL
    const isUrl = address === '' ? 'location' in globalThis : /^https?:\/\/[^@\s]+$/.test(address ?? '')
    if (address === undefined || !isUrl) {
      const hint = 'new Client("https://noetl.example.com"), or NOETL_URL; a token goes into `token`, or NOETL_TOKEN'
      throw new ConfigurationError(address === undefined ? 'no gateway is named' : 'this is no URL of a gateway', hint)
    }
    const token = connecting.token ?? environment?.NOETL_TOKEN
    const given = token === undefined ? connecting : { ...connecting, token }
    this.transport = new Transport(address.replace(/\/+$/, ''), given)
  }

  /** The execution with this id. Nothing is asked. */
  execution(id: string, path = ''): ExecutionHandle {
    return new ExecutionHandle(this, id, path)
  }

  /** Start an execution of the playbook at a path, or of a whole text as `playbook`. */
  async start(given: Starting): Promise<ExecutionHandle> {
    const made = await this.startExecution(given)
    return this.execution(made.execution_id, made.path)
  }

  /** Start an execution, wait for its end, and get its result, or throw what failed. */
  async run(given: Starting & Waiting): Promise<unknown> {
    const { timeout, ...starting } = given
    const started = await this.start(starting)
    return started.result({ timeout, abort: given.abort })
  }

  /** The items of a list, page after page: `client.each('listExecutions', { status: ['failed'] })`. */
  async *each<Name extends keyof Verbs>(
    name: Name,
    ...[given]: Parameters<Verbs[Name]>
  ): AsyncGenerator<Item<Name>> {
    const by = ROUTES[name].next
    if (by === undefined) throw new TypeError(`${name} reads no pages`)
    let more: Readonly<Record<string, unknown>> = { ...given }
    for (;;) {
      const page = (await this.transport.ask(ROUTES[name], more)) as { items: Item<Name>[]; next: unknown }
      yield* page.items
      if (page.next === null) return
      more = { ...more, [by]: page.next }
    }
  }

  /** Follow the events of all executions, from now on or after the `feed_id` of an event, without an end. */
  async *events(given: Asked & { after?: string; names?: readonly string[] } = {}): AsyncGenerator<FeedEvent> {
    const asked = { name: given.names, abort: given.abort }
    for await (const frame of this.transport.follow(EVENTS, asked, given.after ?? null, async () => true)) {
      if (frame.data !== '') yield { ...(JSON.parse(frame.data) as Event), feed_id: frame.id }
    }
  }
}

/** The request that a method makes, to show it or to send it by other means: `requestOf('pauseSchedule', { path })`. */
export function requestOf<Name extends keyof Verbs>(name: Name, ...[given]: Parameters<Verbs[Name]>): ApiRequest {
  return requestFor(ROUTES[name], { ...given })
}

for (const [name, route] of Object.entries(ROUTES)) {
  Object.defineProperty(Client.prototype, name, {
    value: function (this: Client, given: Readonly<Record<string, unknown>> = {}): unknown {
      return route.bytes ? this.transport.download(route, given) : this.transport.ask(route, given)
    },
  })
}
